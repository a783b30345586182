"""A log that Apache Kafka 4.3.1 wrote about share groups, taken over and written again."""

from __future__ import annotations

from pathlib import Path

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.runtime.machine import Loaded, Waiter
from moldau.coordinator.shard.kinds import change_of, record_of
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.share.events import ShareHeartbeat
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import (
    StateTopics,
    TopicState,
    current_change,
    epoch_change,
    member_change,
    state_topics_change,
    target_change,
    target_epoch_change,
)
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.protocol.record_builder import Record
from tests.support.topics_image import TestImage, TestTopic

LINES = (Path(__file__).parent / "kafka_4_3_1_records.txt").read_text().splitlines()
T, U = (bytes.fromhex(word) for word in LINES[0].split()[-2:])
KAFKAS_IMAGE = TestImage((TestTopic("t", T, 2), TestTopic("u", U, 2)), 1, 1)
"""The cluster in which Apache Kafka wrote the records."""
LIVING = ("joined 7", "stable 7", "shared 7", "behind 7", "several_topics 7", "without_topics 7")
OF_T = TopicState("t", frozenset({0, 1}))


def kafkas_records() -> list[Record]:
    pairs = [line.split() for line in LINES[1:]]
    return [Record(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value), 7) for key, value in pairs]


def taken_over() -> GroupShard:
    shard = GroupShard(GroupConfig(), 1_000, lambda: KAFKAS_IMAGE)
    for offset, record in enumerate(kafkas_records()):
        change = change_of(record)
        assert change is not None
        shard.replay(change, offset + 1)
    return shard


def group_of(shard: GroupShard, name: str) -> ShareGroup:
    group = shard.group(name)
    assert isinstance(group, ShareGroup)
    return group


def test_the_groups_are_those_of_apache_kafka() -> None:
    shard = taken_over()
    shown = {
        name: (
            group.state_name,
            group.epoch,
            group.assignment_epoch,
            [(member.epoch, len(member.assigned)) for member in group.members.values()],
        )
        for name in (*LIVING, "empty 7", "altered 7", "forgotten 7")
        for group in [group_of(shard, name)]
    }
    assert shown == {
        "joined 7": ("Stable", 3, 3, [(3, 2)]),
        "stable 7": ("Stable", 3, 3, [(3, 2)]),
        "shared 7": ("Stable", 4, 4, [(4, 2), (4, 1), (4, 1)]),
        "behind 7": ("Stable", 4, 4, [(4, 1), (4, 1)]),
        "several_topics 7": ("Stable", 3, 3, [(3, 3), (3, 1)]),
        "without_topics 7": ("Stable", 2, 2, [(2, 0)]),
        "empty 7": ("Empty", 4, 3, []),
        "altered 7": ("Empty", 1, 1, []),
        "forgotten 7": ("Empty", 4, 3, []),
    }
    assert shard.group("empty 37") is None, "it was deleted"
    assert group_of(shard, "altered 7").state_topics == StateTopics(initialized={T: OF_T})
    assert group_of(shard, "forgotten 7").state_topics == StateTopics()


def test_records_are_written_as_apache_kafka_writes_them() -> None:
    for record in kafkas_records():
        change = change_of(record)
        assert isinstance(change, RecordChange)
        again = record_of(change, 7)
        assert (again.key, again.value) == (record.key, record.value)


def test_groups_are_written_as_apache_kafka_writes_them() -> None:
    """The values of groups and members, from those that were read."""
    shard = taken_over()
    last = {record.key: record.value for record in kafkas_records()}
    for name in LIVING:
        group = group_of(shard, name)
        changes = [
            epoch_change(name, group.epoch, group.metadata_hash),
            target_epoch_change(name, group.assignment_epoch, group.assignment_ms),
        ]
        if group.state_topics != StateTopics():
            changes.append(state_topics_change(name, group.state_topics))
        for member in group.members.values():
            changes += [member_change(name, member), current_change(name, member)]
        one_topic = [each for each in group.targets if len({topic_id for topic_id, _ in group.targets[each]}) == 1]
        changes += [target_change(name, each, group.targets[each]) for each in one_topic]
        for change in changes:
            written = record_of(change, 7)
            assert last[written.key] == written.value, change


def test_a_group_that_is_taken_over_keeps_its_epoch() -> None:
    shard = taken_over()
    shard.step(Loaded(), 1_000, 2_000_000_000_000)
    step = shard.begin(1_000, 2_000_000_000_000)
    for name in LIVING:
        group = group_of(shard, name)
        assert hash_of_topics(group.topics_with(None), step.image) == group.metadata_hash
        member = next(iter(group.members.values()))
        request = ShareGroupHeartbeatRequest(group_id=name, member_id=member.member_id, member_epoch=member.epoch)
        event = ShareHeartbeat(Waiter(1, 1), request, "cli", "/127.0.0.1")
        assert shard.step(event, 2_000, 2_000_000_000_000).records == [], name
