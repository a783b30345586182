"""The records of a dead-letter queue (KIP-1191): what a share group did not process, and why.

    record of the queue   partition = partition of the source modulo the number of partitions of the queue
                          timestamp = the time of writing
                          key, value of the source record if the group copies records, otherwise null
                          headers   __dlq.errors.topic, .partition, .offset, .group, .delivery.count, .message

The queue gets one record for each offset, even if the offset has no record, because it is a marker or compaction
removed the record. Batches are not compressed, and have as many records as the queue's max.message.bytes allows, at
least one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE
from moldau.protocol.record_builder import Record, RecordHeader, append_record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.replication.share.changes import DeadLetter

REJECTED_TEXT: Final = "Offset rejected by client."
DELIVERIES_USED_UP_TEXT: Final = "Offset delivery count exceeded the threshold."
"""The texts of the header `__dlq.errors.message`: for a rejected record, and for one that was delivered as often as
allowed."""
INTERNAL_PREFIX: Final = "__"
"""The prefix that the name of a dead-letter queue must not have."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The temporary errors of a Produce, after which the dead letters are sent again.

DIVERGES: Apache Kafka sends dead letters again only after NOT_LEADER_OR_FOLLOWER, a network error or a time-out, five
times in all; then the record is archived without a dead letter. Here it stays in flight until the queue has it.
"""


class Source(NamedTuple):
    """The share partition whose records become dead letters."""

    group_id: str
    topic: str
    partition: int


class QueueTopic(NamedTuple):
    """The names and settings that decide whether a topic can be the dead-letter queue of a group."""

    name: str
    """errors.deadletterqueue.topic.name of the group"""
    prefix: str
    """errors.deadletterqueue.topic.name.prefix of the broker"""
    is_enabled: bool | None
    """errors.deadletterqueue.group.enable of the topic; None if the topic does not exist"""
    may_be_created: bool
    """errors.deadletterqueue.auto.create.topics.enable of the broker"""


def refusal_of_queue(queue: QueueTopic) -> str | None:
    """Why records cannot be written to the queue's topic; None if they can, or if the topic is to be created first."""
    if not queue.name:
        return "the group names no topic"
    if queue.name.startswith(INTERNAL_PREFIX):
        return f"the name of topic {queue.name} begins with {INTERNAL_PREFIX}"
    if queue.is_enabled is False:
        return f"errors.deadletterqueue.group.enable is not true for topic {queue.name}"
    if queue.is_enabled is None and not queue.may_be_created:
        return f"topic {queue.name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is not true"
    if not queue.name.startswith(queue.prefix):
        return f"the name of topic {queue.name} does not begin with {queue.prefix}"
    return None


def headers_of(source: Source, letter: DeadLetter, offset: int) -> tuple[RecordHeader, ...]:
    values = (
        ("topic", source.topic),
        ("partition", str(source.partition)),
        ("offset", str(offset)),
        ("group", source.group_id),
        ("delivery.count", str(letter.delivery_count)),
        ("message", REJECTED_TEXT if letter.is_rejected else DELIVERIES_USED_UP_TEXT),
    )
    return tuple((f"__dlq.errors.{name}", value.encode()) for name, value in values)


def next_batch(
    source: Source, letter: DeadLetter, originals: Mapping[int, Record], offsets: range, now_ms: int, size_max: int
) -> tuple[bytes, int]:
    """Make a batch of the dead letters of these offsets, as many as `size_max` bytes hold. Returns it with the offset
    of the next dead letter.

    `originals` has the source records by offset. The key and value of a record that is absent are not copied.
    """
    records: list[Record] = []
    encoded = bytearray()
    for offset in offsets:
        original = originals.get(offset)
        key, value = (None, None) if original is None else (original.key, original.value)
        record = Record(key, value, now_ms, headers_of(source, letter, offset))
        append_record(encoded, record, 0, len(records))
        if records and HEADER_SIZE + len(encoded) > size_max:
            break
        records.append(record)
    return build_batch(records), offsets.start + len(records)


class Originals(NamedTuple):
    """Source records that were read, to be copied into dead letters."""

    records: dict[int, Record]
    size: int
    """The number of bytes of the keys, values and headers of the records."""
    next_offset: int
    """The offset from which to read next."""
    is_full: bool
    """Whether the limit on the bytes was reached. The other records are read after these are written."""


def collect_originals(fetched: bytes, offsets: range, size_max: int) -> Originals:
    """Decode the records of these offsets from fetched batches, up to `size_max` bytes.

    A record with more bytes, and the records of a batch that cannot be read, are left out. The function blocks while it
    decompresses.
    """
    records: dict[int, Record] = {}
    size, next_offset = 0, offsets.start
    for position, header in iterate_batches(fetched):
        last_offset = header.last_offset
        if header.is_control or last_offset < offsets.start:
            next_offset = max(next_offset, last_offset + 1)
            continue
        try:
            for record in records_of(fetched, position, header, record_size_max=size_max):
                if record.offset not in offsets:
                    continue
                record_size = size_of_record(record)
                if record_size > size_max:
                    continue
                if size + record_size > size_max:
                    return Originals(records, size, record.offset, is_full=True)
                records[record.offset] = record
                size += record_size
        except MalformedMessage:
            pass
        next_offset = max(next_offset, last_offset + 1)
        if next_offset >= offsets.stop:
            break
    return Originals(records, size, next_offset, is_full=False)


def size_of_record(record: Record) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(value or b"") for name, value in record.headers)
    )
