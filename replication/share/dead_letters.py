"""The records of a dead-letter queue (KIP-1191): what a share group did not process, and why.

    record of the queue   partition = partition of the source modulo the number of partitions of the queue
                          timestamp = the time of writing
                          key, value of the source record if the group copies records, otherwise null
                          headers   __dlq.errors.topic, .partition, .offset, .group, .delivery.count, .message

The queue gets one record for each offset, even for an offset without a record: that of a marker, or of a record that
compaction removed. Batches are not compressed, and have as many records as the queue's max.message.bytes allows, at
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
"""The header `__dlq.errors.message` of a record that was delivered as often as allowed; `REJECTED_TEXT` is that of a
rejected record.
"""
INTERNAL_PREFIX: Final = "__"
"""A prefix that no name of a dead-letter queue may have."""
RETRIABLE_PRODUCE_ERRORS: Final = frozenset(
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


class DeadLetterSource(NamedTuple):
    """The share partition whose records become dead letters."""

    group_id: str
    topic: str
    partition: int


class DeadLetterTopic(NamedTuple):
    """The topic for a group's dead letters, with the settings that decide whether it may be used."""

    name: str
    """errors.deadletterqueue.topic.name of the group"""
    prefix: str
    """errors.deadletterqueue.topic.name.prefix of the broker"""
    is_enabled: bool | None
    """errors.deadletterqueue.group.enable of the topic; None if the topic does not exist"""
    may_be_created: bool
    """errors.deadletterqueue.auto.create.topics.enable of the broker"""


def refusal_of_queue(queue: DeadLetterTopic) -> str | None:
    """Explain why records cannot be written to the topic of the queue. None if they can, or if the topic will be
    created first.
    """
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


def dead_letter_headers(source: DeadLetterSource, letter: DeadLetter, offset: int) -> tuple[RecordHeader, ...]:
    values = (
        ("topic", source.topic),
        ("partition", str(source.partition)),
        ("offset", str(offset)),
        ("group", source.group_id),
        ("delivery.count", str(letter.delivery_count)),
        ("message", REJECTED_TEXT if letter.is_rejected else DELIVERIES_USED_UP_TEXT),
    )
    return tuple((f"__dlq.errors.{name}", value.encode()) for name, value in values)


def next_dead_letter_batch(
    source: DeadLetterSource,
    letter: DeadLetter,
    originals: Mapping[int, Record],
    offsets: range,
    now_ms: int,
    size_max: int,
) -> tuple[bytes, int]:
    """Make a batch with the dead letters of these offsets, as many as fit into `size_max` bytes. Returns it and the
    offset of the next dead letter.

    `originals`: the source records by offset. A dead letter of a missing record has no key and value.
    """
    records: list[Record] = []
    encoded = bytearray()
    for offset in offsets:
        original = originals.get(offset)
        key, value = (None, None) if original is None else (original.key, original.value)
        record = Record(key, value, now_ms, dead_letter_headers(source, letter, offset))
        append_record(encoded, record, 0, len(records))
        if records and HEADER_SIZE + len(encoded) > size_max:
            break
        records.append(record)
    return build_batch(records), offsets.start + len(records)


class SourceRecords(NamedTuple):
    """Source records that will be copied into dead letters."""

    records: dict[int, Record]
    size: int
    """The bytes of the records' keys, values and headers."""
    next_offset: int
    """The offset from which to read next."""
    is_full: bool
    """Whether the size limit was reached. The remaining records are read after these are written."""


def collect_source_records(fetched: bytes, offsets: range, size_max: int) -> SourceRecords:
    """Decode the records of these offsets from fetched batches, up to `size_max` bytes. Blocks during decompression.

    A larger record, and the records of an unreadable batch, are left out. No batch is read if one has no valid header.
    """
    records: dict[int, Record] = {}
    size, next_offset = 0, offsets.start
    try:
        batches = list(iterate_batches(fetched))
    except MalformedMessage:
        batches = []
    for position, header in batches:
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
                    return SourceRecords(records, size, record.offset, is_full=True)
                records[record.offset] = record
                size += record_size
        except MalformedMessage:
            pass
        next_offset = max(next_offset, last_offset + 1)
        if next_offset >= offsets.stop:
            break
    return SourceRecords(records, size, next_offset, is_full=False)


def size_of_record(record: Record) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(value or b"") for name, value in record.headers)
    )
