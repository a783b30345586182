"""The records of `__consumer_offsets`: written as Apache Kafka 4.3.1 writes them, read as far back as it reads.

A key is an int16 type and a struct, a value an int16 version and a struct; a missing value is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from coordinator.classic.group import Group
from protocol.compiler import decode, encode
from protocol.primitives import MalformedMessage
from protocol.record_builder import Record
from protocol.records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.schema import ZERO_UUID, spec_of

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1
GROUP_KEY = 2

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The only version that can carry an explicit expiry."""
GROUP_VERSION = 3

NO_TIMESTAMP = -1
TEXT_SIZE_MAX = 0x7FFF


class CommittedOffset(NamedTuple):
    """How far a group came in a partition, as it said itself."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = NO_TIMESTAMP
    expire_ms: int | None = None
    """Explicit end of its life (OffsetCommit 2-4); None: the broker's retention decides."""
    topic_id: bytes = ZERO_UUID


class OffsetChange(NamedTuple):
    """A record about an offset; None removes it."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupChange(NamedTuple):
    """A record about a group's generation; None removes the group."""

    group_id: str
    value: GroupMetadataValue | None


Change: TypeAlias = OffsetChange | GroupChange


def record_of(change: Change, wall_ms: int) -> Record:
    """The record that says it."""
    if isinstance(change, GroupChange):
        value = None if change.value is None else type_prefix(GROUP_VERSION) + encode(change.value, GROUP_VERSION)
        return Record(type_prefix(GROUP_KEY) + encode(GroupMetadataKey(group=change.group_id), 0), value, wall_ms)
    key = encode(OffsetCommitKey(group=change.group_id, topic=change.topic, partition=change.partition), 0)
    return Record(type_prefix(OFFSET_KEY) + key, None if change.value is None else offset_value(change.value), wall_ms)


def offset_value(committed: CommittedOffset) -> bytes:
    version = OFFSET_VERSION if committed.expire_ms is None else OFFSET_VERSION_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch if version >= 3 else -1,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=NO_TIMESTAMP if committed.expire_ms is None else committed.expire_ms,
        topic_id=committed.topic_id if version >= 4 else ZERO_UUID,
    )
    return type_prefix(version) + encode(value, version)


def generation_change(group: Group, assignments: Mapping[str, bytes]) -> GroupChange:
    """The generation as it stands, with these assignments by member id."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=NO_TIMESTAMP if group.changed_ms is None else group.changed_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return GroupChange(group.group_id, value)


def new_group_change(group: Group) -> GroupChange:
    """The first record of a group: it is there, and nothing more."""
    changed_ms = NO_TIMESTAMP if group.changed_ms is None else group.changed_ms
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=changed_ms
    )
    return GroupChange(group.group_id, value)


def is_storable(text: str) -> bool:
    """Whether a record can hold the text: its size is an int16, in a request it may be more."""
    return len(text) <= TEXT_SIZE_MAX // 4 or len(text.encode()) <= TEXT_SIZE_MAX


def type_prefix(number: int) -> bytes:
    return struct.pack(">h", number)


def change_of(record: Record) -> Change | None:
    """What a record says, None for the types that belong to other kinds of groups.

    Raises `MalformedMessage` for a record that is none, or in a version that nobody has defined yet.
    """
    if record.key is None:
        raise MalformedMessage("a record without a key")
    number = read_prefix(record.key)
    key = memoryview(record.key)[2:]
    if number in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        offset_key = decode(OffsetCommitKey, key, 0)
        committed = None if record.value is None else read_offset_value(record.value)
        return OffsetChange(offset_key.group, offset_key.topic, offset_key.partition, committed)
    if number == GROUP_KEY:
        group_id = decode(GroupMetadataKey, key, 0).group
        return GroupChange(group_id, None if record.value is None else read_group_value(record.value))
    return None


def read_offset_value(value: bytes) -> CommittedOffset:
    version = value_version(value, OffsetCommitValue)
    read = decode(OffsetCommitValue, memoryview(value)[2:], version)
    return CommittedOffset(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        None if read.expire_timestamp == NO_TIMESTAMP else read.expire_timestamp,
        read.topic_id,
    )


def read_group_value(value: bytes) -> GroupMetadataValue:
    return decode(GroupMetadataValue, memoryview(value)[2:], value_version(value, GroupMetadataValue))


def value_version(value: bytes, cls: type[object]) -> int:
    version = read_prefix(value)
    if version not in spec_of(cls).versions:
        raise MalformedMessage(f"{cls.__name__} version {version}")
    return version


def read_prefix(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"{len(data)} bytes cannot hold a version")
    number: int = struct.unpack_from(">h", data)[0]
    return number
