"""Appending to a log: as leader, the batches of clients and of this broker; as follower, those of the leader.

    validate (protocol/record_validation.py)    batches of clients only: sizes, checksum, timestamps, codec
    append_batch                                check against the producer state; assign offset and leader epoch
    store_batch                                 roll the segment if due, note an aborted transaction, write in one
                                                call, add index entries
    note_appended                               update end offset, epochs and producers

Batches of one client that have arrived together are validated one by one, and then written in one call
(`append_run_from_client`). Nothing is noted before the write has succeeded, so a refused or failed append leaves the
log as it was. The call path is flat and passes values instead of objects because every produce request goes through it;
it is compiled.

A follower's batches keep the offsets, epochs and timestamps that the leader gave them. The batches of one fetch
response are checked first and then written in as few calls as segments allow. The first batch that cannot be appended
is refused, together with all batches after it. The batches before it are stored, and the next fetch begins after them.
"""

from __future__ import annotations

from enum import Enum, auto

from moldau.protocol.batch_iterator import BatchIterator
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    PREFIX,
    PREFIX_SIZE,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    whole_batch,
)
from moldau.protocol.record_validation import RecordError, RejectedBatch, ValidBatch, validate_header, validate_records
from moldau.storage.log.log_state import LogState
from moldau.storage.producers.producer_state import (
    NO_OFFSET,
    ProducerBatch,
    TransactionMarker,
    read_transaction_marker,
)
from moldau.storage.producers.verification import VerificationGuard
from moldau.storage.segment.segment import RELATIVE_OFFSET_MAX, Segment


class AppendOrigin(Enum):
    """The maker of a batch that is appended. The origin decides which checks the append makes."""

    CLIENT = auto()
    """A client sent the batch: everything is checked."""
    COORDINATOR = auto()
    """A coordinator in this broker made the batch: it is well formed, and may be a transaction marker."""
    RAFT = auto()
    """The Raft leader of the metadata log made the batches: control batches, no producers, several batches at once."""


NONE = ErrorCode.NONE
CLIENT = AppendOrigin.CLIENT
LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
NO_TIME = -1


class AppendResult:
    """The result of one append. A refused append has an error and offsets of -1; neither the refused batch nor a later
    one is stored."""

    __slots__ = (
        "base_offset",
        "error",
        "error_message",
        "is_duplicate",
        "is_postponed",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error: ErrorCode,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        error_message: str | None = None,
        record_errors: tuple[RecordError, ...] = (),
        is_duplicate: bool = False,
        is_postponed: bool = False,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors
        self.is_duplicate = is_duplicate
        self.is_postponed = is_postponed
        """Whether the batch is so large that an executor thread has to validate it. It is not refused: the caller then
        appends it with `append_examined`."""

    def __repr__(self) -> str:
        return f"AppendResult({self.error.name}, {self.base_offset}..{self.last_offset}, {self.error_message})"


def append_from_client(
    log: LogState,
    records: BytesLike,
    leader_epoch: int,
    now_ms: int,
    produce_version: int,
    guard: VerificationGuard | None,
) -> AppendResult:
    """Validate and append the one batch that a client sent for a partition.

    Offsets and leader epoch are written into a writable buffer in place, which saves a copy of the batch. `guard`: the
    `VerificationGuard` that a batch needs if it opens a transaction (`storage/producers/verification.py`).
    """
    config = log.config
    header = validate_header(records, config, produce_version=produce_version)
    if isinstance(header, RejectedBatch):
        return refuse_invalid(log, header)
    return append_examined(log, validate_records(records, header, config, now_ms), leader_epoch, now_ms, guard)


def append_examined(
    log: LogState,
    examined: ValidBatch | RejectedBatch,
    leader_epoch: int,
    now_ms: int,
    guard: VerificationGuard | None,
) -> AppendResult:
    """Append a client's batch whose validation is done. If the validation rejected it, return that error instead."""
    if isinstance(examined, RejectedBatch):
        return refuse_invalid(log, examined)
    return append_batch(log, examined.batch, examined.header, leader_epoch, now_ms, CLIENT, guard, 0)


def append_internal(
    log: LogState,
    records: BytesLike,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendResult:
    """Append batches that this broker built, up to the first one that is refused.

    `transaction_version`: the transaction.version of the transactions that markers among the batches end.
    """
    view = memoryview(records)
    batches = BatchIterator(records, 0, len(records))
    first_offset = log.end_offset
    try:
        for position, header in batches:
            if not crc_is_valid(records, position, header):
                return refuse(log, ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch does not match")
            batch = view[position : position + header.size]
            result = append_batch(log, batch, header, leader_epoch, now_ms, origin, guard, transaction_version)
            if result.error is not NONE:
                return result
    except MalformedMessage as malformed:
        return refuse(log, ErrorCode.CORRUPT_MESSAGE, str(malformed))
    if batches.partial_size or not records:
        return refuse(log, ErrorCode.CORRUPT_MESSAGE, "the last batch is cut short")
    return AppendResult(NONE, first_offset, log.end_offset - 1, NO_TIME, log.log_start_offset)


def append_batch(
    log: LogState,
    batch: BytesLike,
    header: BatchHeader,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendResult:
    """Append one valid batch: check it against the producer state, assign its offsets and leader epoch,
    and write it."""
    if log.failure is not None:
        return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, f"the log failed: {log.failure}")
    # A batch never spans two segments, and positions in an index have 31 bits.
    if len(batch) > log.config.segment_bytes:
        return refuse(log, ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes do not fit into a segment")
    marker = None
    if header.producer_id != NO_PRODUCER_ID:
        # Before the write: a duplicate must not be stored, and a marker of a fenced coordinator must not end anything.
        producers = log.producers
        attributes = header.attributes
        verdict: ErrorCode | ProducerBatch = NONE
        if attributes & CONTROL_BIT:
            marker = read_transaction_marker(batch)
            if marker is not None:
                verdict = producers.check_marker(header, marker, transaction_version)
        elif attributes & TRANSACTIONAL_BIT or producers.verifications.guards:
            verdict = producers.check_transactional_batch(header, guard, is_from_client=origin is CLIENT)
        elif origin is CLIENT:
            verdict = producers.check_batch(header)
        if verdict is not NONE:
            return refuse_producer(log, header, verdict)
    base_offset = log.end_offset
    buffers: list[BytesLike] = []
    assign_base_offset(buffers, batch, header, base_offset, leader_epoch)
    try:
        store_batch(log, header, buffers, base_offset, leader_epoch, now_ms, marker)
    except OSError as error:
        return refuse_disk(log, error, base_offset)
    append_time_ms = now_ms if log.config.message_timestamp_type is LOG_APPEND_TIME else NO_TIME
    return AppendResult(NONE, base_offset, log.end_offset - 1, append_time_ms, log.log_start_offset)


def assign_base_offset(
    buffers: list[BytesLike], batch: BytesLike, header: BatchHeader, base_offset: int, leader_epoch: int
) -> None:
    """Assign base offset and leader epoch to a batch, and add its bytes to `buffers`. A writable batch is changed in
    place.

    The checksum of a batch covers neither of the two, so it stays valid.
    """
    if isinstance(batch, bytes) or (isinstance(batch, memoryview) and batch.readonly):
        buffers.append(PREFIX.pack(base_offset, header.batch_length, leader_epoch))
        buffers.append(memoryview(batch)[PREFIX_SIZE:])
    else:
        PREFIX.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
        buffers.append(batch)


def append_run_from_client(
    log: LogState, batches: list[memoryview], leader_epoch: int, now_ms: int, produce_version: int
) -> list[AppendResult]:
    """Validate and append consecutive batches of one client in one write. Returns the results of the appended batches,
    or the disk's error for each.

    The run ends before the first batch that is refused, needs a decision about a transaction, has another producer or
    sequence, needs a new segment, or is compressed (several could expand much and block the event loop). That batch and
    later ones have no result; the caller may pass them to `append_from_client`.
    """
    config, segment = log.config, log.active
    if not may_begin_run(log, len(batches)):
        return []
    base_offset = next_offset = log.end_offset
    buffers: list[BytesLike] = []
    headers: list[BatchHeader] = []
    places: list[tuple[int, int, int]] = []
    size_before = 0
    try:
        for batch in batches:
            header = validate_header(batch, config, produce_version=produce_version)
            if isinstance(header, RejectedBatch) or not continues_run(log, headers, header):
                break
            examined = validate_records(batch, header, config, now_ms)
            if isinstance(examined, RejectedBatch):
                break
            last_offset = next_offset + header.last_offset_delta
            size = header.batch_length + LOG_OVERHEAD
            if segment.must_roll(size_before + size, last_offset, header.max_timestamp, now_ms, config):
                break
            assign_base_offset(buffers, examined.batch, header, next_offset, leader_epoch)
            headers.append(header)
            places.append((size, last_offset, header.max_timestamp))
            size_before += size
            next_offset = last_offset + 1
        if not headers:
            return []
        segment.append_run(buffers, places)
        for header in headers:
            update_after_append(log, header, log.end_offset, leader_epoch, None)
    except OSError as error:
        refusal = refuse_disk(log, error, base_offset)
        return [refusal for _ in headers]
    results: list[AppendResult] = []
    for header in headers:
        last_offset = base_offset + header.last_offset_delta
        results.append(AppendResult(NONE, base_offset, last_offset, NO_TIME, log.log_start_offset))
        base_offset = last_offset + 1
    return results


def may_begin_run(log: LogState, batches_count: int) -> bool:
    """Whether `batches_count` batches may be appended in one write. They may not if the log has failed, if the topic's
    settings rewrite batches, if the segment is empty (its first batch decides when it rolls), or if an index may become
    full."""
    config = log.config
    if log.failure is not None or not log.active.size:
        return False
    if config.message_timestamp_type is LOG_APPEND_TIME or config.compression_type is not None:
        return False
    try:
        return not log.active.may_fill_indexes(batches_count)
    except OSError:
        return False  # The append of a single batch meets the same error, and reports it.


def continues_run(log: LogState, headers: list[BatchHeader], header: BatchHeader) -> bool:
    """Whether a valid batch may follow the batches of `headers`, which are not in the producer state yet."""
    producer_id = header.producer_id
    if header.attributes & (TRANSACTIONAL_BIT | CODEC_MASK) or (headers and headers[-1].producer_id != producer_id):
        return False
    if producer_id < 0:
        return producer_id == NO_PRODUCER_ID
    if headers:
        before = headers[-1]
        next_sequence = (before.base_sequence + before.last_offset_delta + 1) & SEQUENCE_MAX
        return header.producer_epoch == before.producer_epoch and header.base_sequence == next_sequence
    producers = log.producers
    return not producers.verifications.guards and producers.check_batch(header) is NONE


def store_batch(
    log: LogState,
    header: BatchHeader,
    buffers: list[BytesLike],
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    marker: TransactionMarker | None,
) -> None:
    """Write one checked batch and update the log's state. Raises OSError, which the caller passes to `refuse_disk`."""
    size = header.batch_length + LOG_OVERHEAD
    last_offset = base_offset + header.last_offset_delta
    segment = log.active
    if segment.must_roll(size, last_offset, header.max_timestamp, now_ms, log.config):
        # Before the write, so that a snapshot of the producers covers exactly the segments before the new one.
        segment = log.roll(now_ms, base_offset)
    is_indexed = marker is not None and index_aborted_transaction(log, segment, header.producer_id, marker, base_offset)
    try:
        segment.append(buffers, size, last_offset, header.max_timestamp)
    except OSError:
        if is_indexed:
            segment.transaction_index.truncate_to(base_offset)
        raise
    update_after_append(log, header, base_offset, leader_epoch, marker)


def index_aborted_transaction(
    log: LogState, segment: Segment, producer_id: int, marker: TransactionMarker, base_offset: int
) -> bool:
    """Add the transaction that a marker aborts to the transaction index. Returns False if the marker aborts none.
    Raises OSError.

    Called before the marker is written: if the disk has no room for the entry, the marker is refused, and nothing has
    changed. If the marker cannot be written, the caller removes the entry. After a crash between the two writes,
    recovery removes it, as it removes all entries past the recovery point. A commit gets no entry, because a
    read_committed consumer skips only aborted transactions.
    """
    aborted = log.producers.transaction_aborted_by(producer_id, marker, base_offset)
    if aborted is None:
        return False
    segment.transaction_index.append(aborted)
    return True


def update_after_append(
    log: LogState, header: BatchHeader, base_offset: int, leader_epoch: int, marker: TransactionMarker | None
) -> None:
    """Update the log end offset, leader epochs and producer state for a batch that has been written. An aborted
    transaction is already in the transaction index (`index_aborted_transaction`)."""
    log.end_offset = end_offset = base_offset + header.last_offset_delta + 1
    # Compared before the call: the epoch changes with a new leader only, and this runs for every batch.
    if leader_epoch != log.epochs.latest_epoch:
        log.epochs.assign(leader_epoch, base_offset)
    producers = log.producers
    if header.producer_id != NO_PRODUCER_ID:
        if not header.attributes & CONTROL_BIT:
            producers.apply_data_batch(header, base_offset)
        elif marker is not None:
            producers.apply_marker(header, marker, base_offset)
    elif header.attributes & CONTROL_BIT:
        log.note_control_batch(base_offset)
    producers.map_end_offset = end_offset
    if not log.is_change_noted:
        log.note_change()


class CheckedBatch:
    """A whole batch of a fetch response that passed the checks, and its position in the response."""

    __slots__ = ("header", "marker", "position")

    def __init__(self, position: int, header: BatchHeader, marker: TransactionMarker | None) -> None:
        self.position = position
        self.header = header
        self.marker = marker


def append_as_follower(log: LogState, records: BytesLike, leader_epoch: int, now_ms: int) -> AppendResult:
    """Append the batches of a fetch response that a leader of epoch `leader_epoch` sent.

    A batch that is cut short at the end of the response is left out. The batches from the first one of a later leader
    epoch on are left out, too: the follower must first compare its log with that leader's. The next fetch gets them.

    The result has the error OFFSET_OUT_OF_RANGE if a batch begins before the log end offset, and CORRUPT_MESSAGE if a
    batch is damaged. The batches before the refused one stay in the log.
    """
    if log.failure is not None:
        return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, f"the log failed: {log.failure}")
    batches: list[CheckedBatch] = []
    complaint = check_fetched(log, records, leader_epoch, batches)
    end_offset = log.end_offset
    try:
        slot = 0
        while slot < len(batches):
            end_offset = log.end_offset
            slot = append_run(log, records, batches, slot, now_ms)
    except OSError as error:
        return refuse_disk(log, error, end_offset)
    if complaint is not None:
        return refuse(log, *complaint)
    first_offset = batches[0].header.base_offset if batches else -1
    return AppendResult(NONE, first_offset, log.end_offset - 1, NO_TIME, log.log_start_offset)


def check_fetched(
    log: LogState, records: BytesLike, leader_epoch: int, batches: list[CheckedBatch]
) -> tuple[ErrorCode, str] | None:
    """Check the batches of a fetch response, and add those that may be appended to the list `batches`. Returns the
    error of the first batch that must not be appended; None if there is no such batch."""
    view = memoryview(records)
    position, end, next_offset = 0, len(view), log.end_offset
    try:
        while (header := whole_batch(view, position, end)) is not None:
            if header.partition_leader_epoch > leader_epoch:
                return None  # This is not an error: another leader was elected before the response was built.
            if not crc_is_valid(view, position, header) or header.last_offset_delta < 0:
                return ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged"
            # A gap is allowed: compaction on the leader leaves some. Going back never is.
            if header.base_offset < next_offset:
                return ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {header.base_offset} before {next_offset}"
            next_offset = header.next_offset
            marker = None
            if header.attributes & CONTROL_BIT and header.has_producer_id:
                marker = read_transaction_marker(view[position : position + header.size])
            batches.append(CheckedBatch(position, header, marker))
            position += header.batch_length + LOG_OVERHEAD
    except MalformedMessage as malformed:
        return ErrorCode.CORRUPT_MESSAGE, str(malformed)
    return None


def append_run(log: LogState, records: BytesLike, batches: list[CheckedBatch], first: int, now_ms: int) -> int:
    """Write the batches from index `first` on in one call, as many as fit into one segment. Returns the index after the
    last written batch.

    An abort marker is always the first batch of a call. It is indexed before the write, and the index entry needs the
    producer state after the batches before it."""
    position, header, marker = batches[first].position, batches[first].header, batches[first].marker
    segment = log.active
    if must_roll(log, segment, header, 0, now_ms):
        # If compaction on the leader has left a gap, the segment still begins at the end of this log: after a crash,
        # a gap between two segments would mean that the end of the first one was lost.
        is_near = header.last_offset - log.end_offset <= RELATIVE_OFFSET_MAX
        segment = log.roll(now_ms, log.end_offset if is_near else header.base_offset)
    size = header.batch_length + LOG_OVERHEAD
    end = first + 1
    while end < len(batches):
        later = batches[end]
        is_abort = later.marker is not None and not later.marker.is_commit
        if is_abort or must_roll(log, segment, later.header, size, now_ms):
            break
        size += later.header.batch_length + LOG_OVERHEAD
        end += 1
    is_indexed = marker is not None and index_aborted_transaction(
        log, segment, header.producer_id, marker, header.base_offset
    )
    try:
        segment.append_run(
            [memoryview(records)[position : position + size]],
            [(each.header.size, each.header.last_offset, each.header.max_timestamp) for each in batches[first:end]],
        )
    except OSError:
        if is_indexed:
            segment.transaction_index.truncate_to(header.base_offset)
        raise
    for each in batches[first:end]:
        header = each.header
        update_after_append(log, header, header.base_offset, header.partition_leader_epoch, each.marker)
    return end


def must_roll(log: LogState, segment: Segment, header: BatchHeader, size_before: int, now_ms: int) -> bool:
    size = size_before + header.batch_length + LOG_OVERHEAD
    return segment.must_roll(size, header.last_offset, header.max_timestamp, now_ms, log.config)


def refuse(log: LogState, error: ErrorCode, message: str) -> AppendResult:
    return AppendResult(error, -1, -1, NO_TIME, log.log_start_offset, message)


def refuse_invalid(log: LogState, refusal: RejectedBatch) -> AppendResult:
    log_start_offset = log.log_start_offset if refusal.is_of_log else -1
    return AppendResult(
        refusal.error,
        -1,
        -1,
        NO_TIME,
        log_start_offset,
        refusal.message,
        refusal.record_errors,
        is_postponed=refusal.is_postponed,
    )


def refuse_producer(log: LogState, header: BatchHeader, verdict: ErrorCode | ProducerBatch) -> AppendResult:
    """The result for a batch that the producer state refuses. For a duplicate it is the result of its first append."""
    if isinstance(verdict, ProducerBatch):
        return AppendResult(
            NONE, verdict.first_offset, verdict.last_offset, verdict.timestamp, log.log_start_offset, is_duplicate=True
        )
    message = f"producer {header.producer_id}: epoch {header.producer_epoch}, sequence {header.base_sequence}"
    entry = log.producers.entries.get(header.producer_id)
    if entry is not None:
        message += f" after epoch {entry.producer_epoch}, sequence {entry.last_sequence}"
    if verdict is ErrorCode.INVALID_TXN_STATE:
        is_open = entry is not None and entry.open_transaction_offset != NO_OFFSET
        message += ": its transaction is open here" if is_open else ": not part of an ongoing transaction"
    return refuse(log, verdict, message)


def refuse_disk(log: LogState, error: OSError, end_offset: int) -> AppendResult:
    """Return the result for a batch whose write failed.

    A full disk or a lack of file descriptors refuses only this batch, provided that the file was truncated to its
    former end: there may be room for the next batch. Any other error, and a file with a torn end, fails the log.

    DIVERGES: in Apache Kafka a full disk takes the log directory offline, and with the last one the broker down.
    """
    # No batch was noted and the file has its former size: the failed append changed nothing.
    if log.end_offset == end_offset and log.active.has_recorded_size():
        log.fail_unless_transient(error)
    else:
        log.fail_log(error)
    return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
