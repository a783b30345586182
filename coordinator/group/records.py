"""The records of `__consumer_offsets`. They are written as Apache Kafka 4.3.1 writes them, and read in every version
that it reads.

A key is an int16 type and a struct, a value is an int16 version and a struct. A record without a value is a tombstone.
The records of offsets belong to groups of all kinds. Every other type of record belongs to one kind of group, which
declares it (`RecordType`); `coordinator/shard/kinds.py` finds the type of a record.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

from moldau.protocol.compiler import decode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.record_batch import NO_PRODUCER_ID
from moldau.protocol.record_builder import Record
from moldau.protocol.records.offsets import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.record_frames import type_prefix, value_version
from moldau.protocol.records.stored_structs import encode_stored
from moldau.protocol.schema import ZERO_UUID

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The only version of an offset record's value that can carry an expiry time of its own."""

NO_TIMESTAMP = -1

KEYS_MAX: Final = 4_096
"""The number of encoded keys of offset records that are cached, because a consumer commits the offsets of the same
partitions repeatedly."""
KEY_LENGTH_MAX: Final = 256
"""The longest group id and topic name (characters) with which a key is cached."""


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = NO_TIMESTAMP
    expire_ms: int | None = None
    """The wall-clock time (ms) at which the offset expires, as the client set it (OffsetCommit 2-4); None if the
    broker's retention decides."""
    topic_id: bytes = ZERO_UUID


TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[TopicPartition, CommittedOffset]


class OffsetChange(NamedTuple):
    """The change that an offset record makes. A record without a value removes the offset."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None
    producer_id: int = NO_PRODUCER_ID
    """The producer in whose transaction the offset is committed. The offset takes effect when that transaction is
    committed. An offset without a producer takes effect at once, and so does a removal. The producer id is a field of
    the batch, not of the record."""


class RecordChange(NamedTuple):
    """The change that a record of one kind of group makes, for example to members, epochs or assignments.

    Key and value are the structs of `protocol/records/`, and must not be changed. A record without a value is a
    tombstone.
    """

    group_id: str
    key: object
    value: object | None


class TransactionEnded(NamedTuple):
    """The change that a transaction marker makes: the producer's pending offsets take effect, or are discarded."""

    producer_id: int
    is_commit: bool


Change: TypeAlias = OffsetChange | RecordChange | TransactionEnded
"""The change that one record, or one marker, makes."""


class OffsetsLoaded(NamedTuple):
    """The last offset of each partition from consecutive commits of a log, joined into one change. The commits are all
    of one transaction, or all outside of transactions, with no tombstone, group record or marker between them.
    """

    offsets: dict[str, Offsets]
    """The committed offsets by group id; a group without an offset is not in it. The machine may keep these
    dictionaries."""
    producer_id: int = NO_PRODUCER_ID
    """The producer in whose transaction the offsets are committed (`OffsetChange.producer_id`)."""


LoadedChange: TypeAlias = Change | OffsetsLoaded
"""A change that the reader of the log produces while a shard loads."""


class RecordType(NamedTuple):
    """One type of record that a kind of group writes."""

    number: int
    """The int16 at the start of the key."""
    key: type
    """The struct of the key."""
    value: type
    """The struct of the value."""
    version: int
    """The version in which Apache Kafka 4.3.1 writes the value."""
    group_field: str = "group_id"
    """The field of the key that holds the group's id."""


def offset_record(change: OffsetChange, wall_ms: int) -> Record:
    """The record that stores a committed offset, or the tombstone that removes it."""
    is_short = len(change.group_id) <= KEY_LENGTH_MAX and len(change.topic) <= KEY_LENGTH_MAX
    key = (_remembered_key if is_short else offset_key)(change.group_id, change.topic, change.partition)
    return Record(key, None if change.value is None else offset_value(change.value), wall_ms)


def group_record(change: RecordChange, record_type: RecordType, wall_ms: int) -> Record:
    """The record that stores a change of a group, or its tombstone."""
    value = None
    if change.value is not None:
        value = type_prefix(record_type.version) + encode_stored(change.value, record_type.version)
    return Record(type_prefix(record_type.number) + encode_stored(change.key, 0), value, wall_ms)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return type_prefix(OFFSET_KEY) + encode_stored(OffsetCommitKey(group=group_id, topic=topic, partition=partition), 0)


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
    return type_prefix(version) + encode_stored(value, version)


def read_offset(record: Record) -> OffsetChange:
    """Decode the record of a committed offset. Raises `MalformedMessage`."""
    assert record.key is not None
    key = decode(OffsetCommitKey, memoryview(record.key)[2:], 0)
    committed = None if record.value is None else read_offset_value(record.value)
    return OffsetChange(key.group, key.topic, key.partition, committed)


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


def read_group_record(record: Record, record_type: RecordType) -> RecordChange:
    """Decode a record of a group, whose type is `record_type`. Raises `MalformedMessage`."""
    assert record.key is not None
    key: Any = decode(record_type.key, memoryview(record.key)[2:], 0)
    value: object = None
    if record.value is not None:
        value = decode(record_type.value, memoryview(record.value)[2:], value_version(record.value, record_type.value))
    return RecordChange(getattr(key, record_type.group_field), key, value)
