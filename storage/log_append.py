"""Taking batches into a log: what is checked, what is assigned, what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import (
    CONTROL_BIT,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    PREFIX,
    PREFIX_SIZE,
    BatchHeader,
    BatchIterator,
    crc_is_valid,
    parse_header,
)
from storage.append_result import AppendOrigin, AppendResult
from storage.disk_errors import NO_SPACE
from storage.producer_state import ProducerBatch, TransactionMarker
from storage.transaction_marker import read_transaction_marker

if TYPE_CHECKING:
    from storage.log import Log

NONE = ErrorCode.NONE
CLIENT = AppendOrigin.CLIENT


def append_as_leader(
    log: Log, records: BytesLike, leader_epoch: int, now_ms: int, origin: AppendOrigin = CLIENT
) -> AppendResult:
    """Check, assign offsets and the leader epoch, write. A writable buffer is patched in place.

    A client sends exactly one batch. Others may send several; a refusal then leaves those before it in the log.
    """
    try:
        header = parse_header(records)
    except MalformedMessage as malformed:
        return refuse_unreadable(log, records, str(malformed))
    size = header.batch_length + 12
    if size != len(records):
        if origin is CLIENT or size > len(records):
            return refuse(log, ErrorCode.INVALID_RECORD, "exactly one whole batch a partition is expected")
        return append_several(log, records, leader_epoch, now_ms, origin)
    return append_batch(log, records, header, leader_epoch, now_ms, origin)


def append_batch(
    log: Log, batch: BytesLike, header: BatchHeader, leader_epoch: int, now_ms: int, origin: AppendOrigin
) -> AppendResult:
    if log.failure is not None:
        return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, f"the log failed: {log.failure}")
    if origin is CLIENT:
        refusal = refuse_client_header(log, header)
        if refusal is not None:
            return refusal
    if not crc_is_valid(batch, 0, header):
        return refuse(log, ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch does not match")
    if len(batch) > log.config.segment_bytes:
        return refuse(log, ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes do not fit into a segment")
    marker = None
    if header.producer_id != NO_PRODUCER_ID:
        if header.attributes & CONTROL_BIT:
            marker = read_transaction_marker(batch)
            verdict: ErrorCode | ProducerBatch = log.producers.check_marker(header, marker) if marker else NONE
        else:
            verdict = log.producers.check(header) if origin is CLIENT else NONE
        if verdict is not NONE:
            return refuse_producer(log, header, verdict)
    base_offset = log.end_offset
    prefix = PREFIX.pack(base_offset, header.batch_length, leader_epoch)
    try:
        if isinstance(batch, bytes) or (isinstance(batch, memoryview) and batch.readonly):
            store(log, header, [prefix, memoryview(batch)[PREFIX_SIZE:]], base_offset, leader_epoch, now_ms, marker)
        else:
            batch[:PREFIX_SIZE] = prefix
            store(log, header, [batch], base_offset, leader_epoch, now_ms, marker)
    except OSError as error:
        return refuse_disk(log, error, base_offset)
    return AppendResult(NONE, base_offset, log.end_offset - 1, -1, log.log_start_offset)


def store(
    log: Log,
    header: BatchHeader,
    buffers: list[BytesLike],
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    marker: TransactionMarker | None,
) -> None:
    """Write one checked batch and take note of it. Raises OSError; `refuse_disk` says what that leaves."""
    size = header.batch_length + 12
    last_offset = base_offset + header.last_offset_delta
    segment = log.active
    if segment.must_roll(size, last_offset, header.max_timestamp, now_ms, log.config):
        segment = log.roll(now_ms)
    segment.append(buffers, size, last_offset, header.max_timestamp)
    take_note(log, header, base_offset, leader_epoch, marker)


def take_note(
    log: Log, header: BatchHeader, base_offset: int, leader_epoch: int, marker: TransactionMarker | None
) -> None:
    """Bring what is derived of the batches up to one that was written."""
    log.end_offset = end_offset = base_offset + header.last_offset_delta + 1
    if leader_epoch != log.epochs.latest_epoch:
        log.epochs.assign(leader_epoch, base_offset)
    producers = log.producers
    if header.producer_id != NO_PRODUCER_ID:
        if not header.attributes & CONTROL_BIT:
            producers.take_data(header, base_offset)
        elif marker is not None:
            completed = producers.take_marker(header, marker, base_offset)
            if completed is not None and completed.is_aborted:
                log.active.transaction_index.append(producers.aborted(completed))
    producers.map_end_offset = end_offset


def append_several(log: Log, records: BytesLike, leader_epoch: int, now_ms: int, origin: AppendOrigin) -> AppendResult:
    view = memoryview(records)
    batches = BatchIterator(records, 0, len(records))
    first_offset = log.end_offset
    try:
        for position, header in batches:
            batch = view[position : position + header.size]
            result = append_batch(log, batch, header, leader_epoch, now_ms, origin)
            if result.error is not NONE:
                return result
    except MalformedMessage as malformed:
        return refuse(log, ErrorCode.CORRUPT_MESSAGE, str(malformed))
    if batches.partial_size:
        return refuse(log, ErrorCode.CORRUPT_MESSAGE, "the last batch is cut short")
    return AppendResult(NONE, first_offset, log.end_offset - 1, -1, log.log_start_offset)


def append_as_follower(log: Log, records: BytesLike, leader_epoch: int, now_ms: int) -> AppendResult:
    """Write batches as the leader stored them, offsets and epochs kept. A batch cut short at the end is left out.

    OFFSET_OUT_OF_RANGE where the first batch does not begin at or past the end of the log, CORRUPT_MESSAGE where one is
    damaged: what came before it stays.
    """
    if log.failure is not None:
        return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, f"the log failed: {log.failure}")
    view = memoryview(records)
    first_offset, end_offset = -1, log.end_offset
    try:
        for position, header in BatchIterator(records, 0, len(records)):
            if header.partition_leader_epoch > leader_epoch:
                break  # of a leader we do not know yet: the next fetch brings it again
            batch = view[position : position + header.size]
            if not crc_is_valid(records, position, header) or header.last_offset_delta < 0:
                return refuse(log, ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
            if header.base_offset < log.end_offset:
                return refuse(
                    log, ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {header.base_offset} before {log.end_offset}"
                )
            marker = (
                read_transaction_marker(batch) if header.attributes & CONTROL_BIT and header.has_producer_id else None
            )
            end_offset = log.end_offset
            if first_offset < 0:
                first_offset = header.base_offset
            store(log, header, [batch], header.base_offset, header.partition_leader_epoch, now_ms, marker)
    except MalformedMessage as malformed:
        return refuse(log, ErrorCode.CORRUPT_MESSAGE, str(malformed))
    except OSError as error:
        return refuse_disk(log, error, end_offset)
    return AppendResult(NONE, first_offset, log.end_offset - 1, -1, log.log_start_offset)


# Refusals


def refuse(log: Log, error: ErrorCode, message: str) -> AppendResult:
    return AppendResult(error, -1, -1, -1, log.log_start_offset, message)


def refuse_unreadable(log: Log, records: BytesLike, message: str) -> AppendResult:
    is_old = len(records) > MAGIC_POSITION and 0 <= records[MAGIC_POSITION] < MAGIC
    return refuse(log, ErrorCode.INVALID_RECORD if is_old else ErrorCode.CORRUPT_MESSAGE, message)


def refuse_client_header(log: Log, header: BatchHeader) -> AppendResult | None:
    """What the header alone says against a client's batch."""
    if header.base_offset != 0:
        return refuse(log, ErrorCode.INVALID_RECORD, f"the base offset is {header.base_offset} instead of 0")
    if header.batch_length + 12 > log.config.max_message_bytes:
        message = f"a batch of {header.size} bytes is above max.message.bytes ({log.config.max_message_bytes})"
        return refuse(log, ErrorCode.MESSAGE_TOO_LARGE, message)
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        message = f"{header.records_count} records with last offset delta {header.last_offset_delta}"
        return refuse(log, ErrorCode.INVALID_RECORD, message)
    if header.attributes & CONTROL_BIT:
        return refuse(log, ErrorCode.INVALID_RECORD, "clients write no control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return refuse(log, ErrorCode.INVALID_RECORD, f"base sequence {header.base_sequence} of a producer with an id")
    return None


def refuse_producer(log: Log, header: BatchHeader, verdict: ErrorCode | ProducerBatch) -> AppendResult:
    """A repeated batch is answered with what was answered then."""
    if isinstance(verdict, ProducerBatch):
        return AppendResult(
            NONE, verdict.first_offset, verdict.last_offset, verdict.timestamp, log.log_start_offset, is_duplicate=True
        )
    entry = log.producers.entries[header.producer_id]
    message = (
        f"producer {header.producer_id}: epoch {header.producer_epoch}, sequence {header.base_sequence}"
        f" after epoch {entry.producer_epoch}, sequence {entry.last_sequence}"
    )
    return refuse(log, verdict, message)


def refuse_disk(log: Log, error: OSError, end_offset: int) -> AppendResult:
    """A full disk refuses this batch alone: it was cut back, and there may be room later. All else ends the log."""
    was_cut_back = log.end_offset == end_offset and log.active.size == log.active.file().size()
    if error.errno not in NO_SPACE or not was_cut_back:
        log.fail(error)
    return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
