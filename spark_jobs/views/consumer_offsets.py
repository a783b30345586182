"""The tables `offsets` and `groups`, from `__consumer_offsets`."""

from __future__ import annotations

from typing import Final

from moldau.protocol.compiler import decode
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, value_version
from moldau.spark_jobs.views.rows import Row, time_of

OFFSET_KEYS: Final = (0, 1)
"""The types of keys of committed offsets; 0 is that of Kafka's first releases."""
GROUP_KEY: Final = 2


def offset_row(key: bytes, value: bytes) -> Row | None:
    """A row of `OFFSETS`; None for a key of another type. Raises `MalformedMessage`."""
    if read_prefix(key) not in OFFSET_KEYS:
        return None
    whose = decode(OffsetCommitKey, memoryview(key)[PREFIX_SIZE:], 0)
    read = decode(OffsetCommitValue, memoryview(value)[PREFIX_SIZE:], value_version(value, OffsetCommitValue))
    return (
        whose.group,
        whose.topic,
        whose.partition,
        read.offset,
        None if read.leader_epoch < 0 else read.leader_epoch,
        read.metadata,
        time_of(read.commit_timestamp),
        time_of(read.expire_timestamp),
    )


def group_row(key: bytes, value: bytes) -> Row | None:
    """A row of `GROUPS`, of a group of the classic protocol; None for a key of another type. Raises
    `MalformedMessage`."""
    if read_prefix(key) != GROUP_KEY:
        return None
    group = decode(GroupMetadataKey, memoryview(key)[PREFIX_SIZE:], 0).group
    read = decode(GroupMetadataValue, memoryview(value)[PREFIX_SIZE:], value_version(value, GroupMetadataValue))
    members = [
        {
            "memberId": each.member_id,
            "groupInstanceId": each.group_instance_id,
            "clientId": each.client_id,
            "clientHost": each.client_host,
        }
        for each in read.members
    ]
    return (
        group,
        read.protocol_type,
        read.generation,
        read.protocol,
        read.leader,
        time_of(read.current_state_timestamp),
        members,
    )
