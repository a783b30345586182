"""The records of `__consumer_offsets`: written as Apache Kafka 4.3.1 writes them, read as far back as it reads.

A key is an int16 type and a struct, a value an int16 version and a struct; a missing value is a tombstone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from moldau.protocol.compiler import decode, encode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import NO_PRODUCER_ID
from moldau.protocol.record_builder import Record
from moldau.protocol.records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.protocol.records.record_frames import read_prefix, type_prefix, value_version
from moldau.protocol.schema import ZERO_UUID

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1
GROUP_KEY = 2

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The only version that can carry an explicit expiry."""
GROUP_VERSION = 3

NO_TIMESTAMP = -1

KEYS_MAX: Final = 4_096
"""The most keys of offsets that are remembered: a consumer commits the offsets of the same partitions again and again.
"""
KEY_LENGTH_MAX: Final = 256
"""The longest group id and topic (characters) whose key is remembered."""


class CommittedOffset(NamedTuple):
    """A committed offset of a group for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = NO_TIMESTAMP
    expire_ms: int | None = None
    """When the offset expires (wall clock, ms), as the client set it (OffsetCommit 2-4); None: after the broker's
    retention.
    """
    topic_id: bytes = ZERO_UUID


TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[TopicPartition, CommittedOffset]


class OffsetChange(NamedTuple):
    """The change that an offset record makes. Without an offset the record removes it."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None
    producer_id: int = NO_PRODUCER_ID
    """The producer in whose transaction the offset is committed: the offset counts once that transaction is committed.
    Without one the offset counts at once, and so does a removal. The producer id is a field of the batch, not of the
    record."""


class GroupChange(NamedTuple):
    """A record about a classic group's generation. Without a generation the record removes the group."""

    group_id: str
    value: GroupMetadataValue | None


class TransactionEnded(NamedTuple):
    """A marker that ended the transaction of a producer: its pending offsets now count, or are discarded."""

    producer_id: int
    is_commit: bool


Change: TypeAlias = OffsetChange | GroupChange | TransactionEnded
"""The change that one record, or one marker, makes."""


class OffsetsLoaded(NamedTuple):
    """Consecutive commits of a log, joined: the last offset of each partition.

    All are of one transaction or of none. No tombstone, group record or marker lies between them.
    """

    offsets: dict[str, Offsets]
    """The committed offsets by group id; a group without an offset is not in it. The machine may keep these
    dictionaries."""
    producer_id: int = NO_PRODUCER_ID
    """See `OffsetChange.producer_id`."""


LoadedChange: TypeAlias = Change | OffsetsLoaded
"""A change that the reader of the log produces."""


def record_of(change: Change, wall_ms: int) -> Record:
    """The record that stores the change."""
    assert not isinstance(change, TransactionEnded), "a marker has no record of this kind"
    if isinstance(change, GroupChange):
        value = None if change.value is None else type_prefix(GROUP_VERSION) + encode(change.value, GROUP_VERSION)
        return Record(type_prefix(GROUP_KEY) + encode(GroupMetadataKey(group=change.group_id), 0), value, wall_ms)
    is_short = len(change.group_id) <= KEY_LENGTH_MAX and len(change.topic) <= KEY_LENGTH_MAX
    key = (_remembered_key if is_short else offset_key)(change.group_id, change.topic, change.partition)
    return Record(key, None if change.value is None else offset_value(change.value), wall_ms)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return type_prefix(OFFSET_KEY) + encode(OffsetCommitKey(group=group_id, topic=topic, partition=partition), 0)


_remembered_key: Final = lru_cache(KEYS_MAX)(offset_key)


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


def change_of(record: Record) -> OffsetChange | GroupChange | None:
    """The change that a record makes; None for the types of records that other kinds of groups write.

    Raises `MalformedMessage` for a record of another kind, or of a version that Apache Kafka 4.3.1 does not define.
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
