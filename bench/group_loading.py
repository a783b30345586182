"""The time in which the group coordinator loads 10,000 groups with 1,000,000 offsets from one partition of
`__consumer_offsets`.

Half of the groups are classic, half are consumer groups; each has two members, and a hundred committed offsets.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from typing import Final

from bench.coordinator_loading import LoadingRows
from bench.figures import Figure
from bench.groups import RunForm
from bench.offset_loading import figures_of_groups, group_names
from bench.subjects import Bench
from moldau.coordinator.consumer.member import ConsumerMember
from moldau.coordinator.consumer.records import (
    current_change,
    epoch_change,
    member_change,
    target_change,
    target_epoch_change,
)
from moldau.coordinator.group.records import Change, CommittedOffset, OffsetChange, RecordChange
from moldau.coordinator.shard.kinds import record_of
from moldau.protocol.compiler import encode
from moldau.protocol.record_builder import build_batch
from moldau.protocol.records.offsets import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    TopicPartition,
)

GROUPS_COUNT: Final = 10_000
TOPICS_COUNT: Final = 5
PARTITIONS_COUNT: Final = 20
RECORDS_A_BATCH: Final = 10
MEMBERS_COUNT: Final = 2
EPOCH: Final = 3
SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 300_000
ROWS: Final = LoadingRows("group loading", "10,000 groups with 1,000,000 offsets", "groups", "10,000 groups")


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Start brokers in turns that were killed with the same log, and measure the loading and other requests
    meanwhile."""
    groups = group_names(GROUPS_COUNT)
    return figures_of_groups(bench, form, ROWS, groups, groups_log(groups))


def groups_log(groups: Iterable[str]) -> bytes:
    """The log of created groups and their committed offsets."""
    now_ms = time.time_ns() // 1_000_000
    log = bytearray()
    offset = 0
    for number, group in enumerate(groups):
        made = consumer_group(group, now_ms) if number % 2 else classic_group(group, now_ms)
        for batch in (made, *commit_batches(group, now_ms)):
            records = [record_of(change, now_ms) for change in batch]
            log += build_batch(records, base_offset=offset, base_sequence=0, partition_leader_epoch=0)
            offset += len(records)
    return bytes(log)


def topic_name(topic: int) -> str:
    return f"topic-{topic}"


def topic_id(topic: int) -> bytes:
    return (topic + 1).to_bytes(16, "big")


def member_partitions() -> Iterator[range]:
    """The partitions of each topic that each member is assigned."""
    size = PARTITIONS_COUNT // MEMBERS_COUNT
    return (range(first, first + size) for first in range(0, PARTITIONS_COUNT, size))


def commit_batches(group: str, now_ms: int) -> Iterator[list[Change]]:
    """Yield the batches of a group's commits."""
    for topic in range(TOPICS_COUNT):
        for first in range(0, PARTITIONS_COUNT, RECORDS_A_BATCH):
            yield [
                OffsetChange(group, topic_name(topic), partition, CommittedOffset(123_456, 0, "", now_ms))
                for partition in range(first, first + RECORDS_A_BATCH)
            ]


def classic_group(group: str, now_ms: int) -> list[Change]:
    """The record of a stable classic group."""
    names = [topic_name(topic) for topic in range(TOPICS_COUNT)]
    members = [
        MemberMetadata(
            member_id=f"{group}-member-{number}",
            client_id="bench",
            client_host="/127.0.0.1",
            rebalance_timeout=REBALANCE_TIMEOUT_MS,
            session_timeout=SESSION_TIMEOUT_MS,
            subscription=consumer_protocol_bytes(ConsumerProtocolSubscription(topics=names)),
            assignment=consumer_protocol_bytes(
                ConsumerProtocolAssignment(
                    assigned_partitions=[TopicPartition(topic=name, partitions=[*share]) for name in names]
                )
            ),
        )
        for number, share in enumerate(member_partitions())
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=EPOCH,
        protocol="range",
        leader=members[0].member_id,
        current_state_timestamp=now_ms,
        members=members,
    )
    return [RecordChange(group, GroupMetadataKey(group=group), value)]


def consumer_protocol_bytes(message: object) -> bytes:
    """Encode a message of the consumer protocol in its first version."""
    return struct.pack(">h", 0) + encode(message, 0)


def consumer_group(group: str, now_ms: int) -> list[Change]:
    """The records of a consumer group whose members have reached their targets."""
    names = frozenset(topic_name(topic) for topic in range(TOPICS_COUNT))
    changes: list[Change] = [epoch_change(group, EPOCH, 1)]
    members = {}
    for number, share in enumerate(member_partitions()):
        assigned = {topic_id(topic): dict.fromkeys(share, EPOCH) for topic in range(TOPICS_COUNT)}
        members[f"{group}-member-{number}"] = assigned
    for member_id, assigned in members.items():
        member = ConsumerMember(
            member_id,
            client_id="bench",
            client_host="/127.0.0.1",
            subscribed_topics=names,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            epoch=EPOCH,
            previous_epoch=EPOCH - 1,
            assigned=assigned,
        )
        target = {each: frozenset(indexes) for each, indexes in assigned.items()}
        changes += [
            member_change(group, member),
            target_change(group, member_id, target),
            current_change(group, member),
        ]
    return [*changes, target_epoch_change(group, EPOCH, now_ms)]
