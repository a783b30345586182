"""Logs that Apache Kafka 4.3.1 wrote, taken over; and logs that lack what was compacted away."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.member import ConsumerMember, MemberState, with_assignment
from moldau.coordinator.consumer.records import (
    current_change,
    epoch_change,
    group_tombstones,
    member_change,
    member_tombstones,
    target_change,
    target_epoch_change,
)
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.membership import LEAVE_EPOCH
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change, RecordChange
from moldau.coordinator.runtime.machine import Loaded, Waiter
from moldau.coordinator.shard.kinds import change_of, record_of
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.record_builder import Record
from moldau.protocol.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicPartitions,
)
from tests.support.consumer_stage import ConsumerStage
from tests.support.topics_image import TestImage, TestTopic

LINES = (Path(__file__).parent / "kafka_4_3_1_records.txt").read_text().splitlines()
TOPIC_ID = bytes.fromhex(LINES[0].split()[-1])
A = b"a" * 16


def kafkas_records() -> list[Record]:
    pairs = [line.split() for line in LINES[1:]]
    return [Record(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value), 7) for key, value in pairs]


KAFKAS_IMAGE = TestImage((TestTopic("t", TOPIC_ID, 2),), 1, 1)
"""The cluster in which Apache Kafka wrote the records."""


def taken_over() -> GroupShard:
    shard = GroupShard(GroupConfig(), 100, lambda: KAFKAS_IMAGE)
    for offset, record in enumerate(kafkas_records()):
        change = change_of(record)
        assert change is not None
        shard.replay(change, offset + 1)
    return shard


def test_the_groups_are_those_of_apache_kafka() -> None:
    shard = taken_over()
    groups = {name: shard.group(name) for name in ("stable 0", "moved 7", "static 1", "away 7", "mixed_stable 7")}
    shown = {
        name: (
            group.state_name,
            group.epoch,
            [(member.epoch, len(member.assigned)) for member in group.members.values()],
        )
        for name, group in groups.items()
        if isinstance(group, ConsumerGroup)
    }
    assert shown == {
        "stable 0": ("Reconciling", 3, [(2, 1), (3, 0)]),
        "moved 7": ("Stable", 3, [(3, 1), (3, 1)]),
        "static 1": ("Stable", 2, [(2, 1), (2, 0)]),
        "away 7": ("Reconciling", 2, [(-2, 1)]),
        "mixed_stable 7": ("Stable", 2, [(2, 1), (2, 1)]),
    }


def test_the_hash_of_the_topics_is_that_of_apache_kafka() -> None:
    shard = taken_over()
    for name in ("stable 0", "moved 7", "mixed_stable 7"):
        group = shard.group(name)
        assert isinstance(group, ConsumerGroup) and group.metadata_hash != 0
        assert hash_of_topics(group.subscriptions.topics, KAFKAS_IMAGE) == group.metadata_hash


def test_a_group_that_is_taken_over_keeps_its_epoch() -> None:
    shard = taken_over()
    shard.step(Loaded(), 1_000, 2_000_000_000_000)
    request = ConsumerGroupHeartbeatRequest(group_id="moved 7", member_id="a", member_epoch=3)
    event = ConsumerHeartbeat(Waiter(1, 1), request, "cli", "/127.0.0.1", "x", None)
    assert shard.step(event, 2_000, 2_000_000_000_000).records == []


def test_records_are_written_as_apache_kafka_writes_them() -> None:
    for record in kafkas_records():
        change = change_of(record)
        assert isinstance(change, RecordChange)
        again = record_of(change, 7)
        assert (again.key, again.value) == (record.key, record.value)


def test_members_are_written_as_apache_kafka_writes_them() -> None:
    """The values of members, from the members that were read."""
    shard = taken_over()
    last = {record.key: record.value for record in kafkas_records()}
    for name in ("stable 0", "moved 7", "away 7", "mixed_stable 7"):
        group = shard.group(name)
        assert isinstance(group, ConsumerGroup)
        for member in group.members.values():
            for change in (member_change(name, member), current_change(name, member)):
                written = record_of(change, 7)
                assert last[written.key] == written.value
        target = record_of(target_epoch_change(name, group.assignment_epoch, group.assignment_ms), 7)
        assert last[target.key] == target.value
        epoch = record_of(epoch_change(name, group.epoch, group.metadata_hash), 7)
        assert last[epoch.key] == epoch.value


# Older releases


def test_partitions_without_epochs_are_of_the_epoch_of_the_member() -> None:
    topic = TopicPartitions(topic_id=A, partitions=[0, 1], assignment_epochs=None)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4, previous_member_epoch=3, state=0, assigned_partitions=[topic], partitions_pending_revocation=[]
    )
    assert with_assignment(ConsumerMember("m"), value).assigned == {A: {0: 4, 1: 4}}
    topic.assignment_epochs = [1]
    assert with_assignment(ConsumerMember("m"), value).assigned == {A: {0: 4, 1: 4}}
    value.member_epoch = -2
    assert with_assignment(ConsumerMember("m"), value).assigned == {A: {0: 0, 1: 0}}


def test_a_state_of_a_later_release_is_unknown() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4, previous_member_epoch=3, state=9, assigned_partitions=[], partitions_pending_revocation=[]
    )
    assert with_assignment(ConsumerMember("m"), value).state is MemberState.UNKNOWN


def test_the_topics_that_a_release_before_4_1_wrote_are_removed() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    key = ConsumerGroupPartitionMetadataKey(group_id="g")
    old = RecordChange("g", key, ConsumerGroupPartitionMetadataValue(topics=[]))
    stage.store(record_of(old, 7))
    stage.take_over()
    assert stage.group.has_partition_metadata
    stage.stay("m1")
    assert stage.written == ["-ConsumerGroupPartitionMetadata"]
    assert not stage.group.has_partition_metadata


# Logs that are being compacted


def loaded(*changes: Change) -> GroupShard:
    shard = GroupShard(GroupConfig(), 100)
    for offset, change in enumerate(changes):
        shard.replay(change, offset + 1)
    return shard


MEMBER = ConsumerMember("m", epoch=2, assigned={A: {0: 2}})
GROUP = (
    member_change("g", MEMBER),
    epoch_change("g", 2, 5),
    target_change("g", "m", {A: frozenset({0})}),
    target_epoch_change("g", 2, 7),
    current_change("g", MEMBER),
)


@pytest.mark.parametrize("kept", range(6))
def test_the_tombstone_of_a_group_removes_all_of_it(kept: int) -> None:
    """Also if the tombstones of its members, targets and partitions were compacted away: it may be made again then."""
    *others, group_tombstone = group_tombstones("g", ["m"], [])
    others = others[:kept]
    assert loaded(*GROUP, *others, group_tombstone).group("g") is None
    again = loaded(*GROUP, *others, group_tombstone, *GROUP).group("g")
    assert isinstance(again, ConsumerGroup)
    assert (again.epoch, [*again.members], [*again.targets]) == (2, ["m"], ["m"])


def test_the_tombstone_of_a_member_removes_its_partitions_and_its_target() -> None:
    current, target, metadata = member_tombstones("g", "m")
    for before in ([], [current], [target], [current, target]):
        group = loaded(*GROUP, *before, metadata).group("g")
        assert isinstance(group, ConsumerGroup)
        assert not group.members and not group.targets and not group.is_owned(A, 0)


def test_a_member_without_its_last_record_has_left() -> None:
    group = loaded(*GROUP, member_tombstones("g", "m")[0]).group("g")
    assert isinstance(group, ConsumerGroup)
    assert (group.members["m"].epoch, group.members["m"].assigned) == (LEAVE_EPOCH, {})
    assert not group.is_owned(A, 0)


def test_tombstones_of_what_does_not_exist_are_ignored() -> None:
    assert loaded(*group_tombstones("g", ["m"], ["a.*"])).group("g") is None
    group = loaded(*GROUP, *member_tombstones("g", "nobody")).group("g")
    assert isinstance(group, ConsumerGroup) and [*group.members] == ["m"]


def test_a_partition_belongs_to_the_member_that_was_written_last() -> None:
    """A log that is being compacted may name an earlier owner again, before the record that removes it."""
    other = ConsumerMember("n", epoch=3, assigned={A: {0: 3}})
    group = loaded(*GROUP, member_change("g", other), current_change("g", other)).group("g")
    assert isinstance(group, ConsumerGroup)
    group.remove_member("m")
    assert group.is_owned(A, 0)
