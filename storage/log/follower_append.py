"""Appending to a follower's log: batches keep the offsets, epochs and timestamps that the leader gave them.

The batches of one fetch response are checked first and then written in as few calls as segments allow. From the first
batch that cannot be appended on, all batches are refused: those before it are stored, and the next fetch begins after
them.
"""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, LOG_OVERHEAD, BatchHeader, crc_is_valid, whole_batch
from moldau.storage.log.append_result import AppendResult
from moldau.storage.log.leader_append import NO_TIME, NONE, refuse, refuse_disk, take_note
from moldau.storage.log.log_state import LogState
from moldau.storage.producers.producer_state import TransactionMarker
from moldau.storage.producers.transaction_marker import read_transaction_marker
from moldau.storage.segment.segment import RELATIVE_OFFSET_MAX, Segment


class CheckedBatch:
    """A whole batch of a fetch response that passed the checks, and its position in the response."""

    __slots__ = ("header", "marker", "position")

    def __init__(self, position: int, header: BatchHeader, marker: TransactionMarker | None) -> None:
        self.position = position
        self.header = header
        self.marker = marker


def append_as_follower(log: LogState, records: BytesLike, leader_epoch: int, now_ms: int) -> AppendResult:
    """Append the batches of a fetch response.

    Left out are a batch that is cut short at the end of the response, and everything from the first batch of a later
    leader epoch than `leader_epoch`, the one that was fetched from: the follower must first check that its log agrees
    with that leader's. The next fetch gets them again.

    OFFSET_OUT_OF_RANGE where a batch begins before the log end offset, CORRUPT_MESSAGE where one is damaged. The
    batches before it stay in the log.
    """
    if log.failure is not None:
        return refuse(log, ErrorCode.KAFKA_STORAGE_ERROR, f"the log failed: {log.failure}")
    batches: list[CheckedBatch] = []
    complaint = check(log, records, leader_epoch, batches)
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


def check(
    log: LogState, records: BytesLike, leader_epoch: int, batches: list[CheckedBatch]
) -> tuple[ErrorCode, str] | None:
    """Collect the batches that may be written into `batches`. Returns the error of the first batch that may not; None
    where all may."""
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
    """Write the batches from slot `first` on that fit into one segment, in one call. Returns the slot after them."""
    position, header = batches[first].position, batches[first].header
    segment = log.active
    if must_roll(log, segment, header, 0, now_ms):
        # Where compaction on the leader has left a gap, the segment still begins at the end of this log: after a crash,
        # a gap between two segments would mean that the end of the first one was lost.
        is_near = header.last_offset - log.end_offset <= RELATIVE_OFFSET_MAX
        segment = log.roll(now_ms, log.end_offset if is_near else header.base_offset)
    size = header.batch_length + LOG_OVERHEAD
    end = first + 1
    while end < len(batches) and not must_roll(log, segment, batches[end].header, size, now_ms):
        size += batches[end].header.batch_length + LOG_OVERHEAD
        end += 1
    segment.append_run(
        memoryview(records)[position : position + size],
        [(each.header.size, each.header.last_offset, each.header.max_timestamp) for each in batches[first:end]],
    )
    for each in batches[first:end]:
        header = each.header
        take_note(log, header, header.base_offset, header.partition_leader_epoch, each.marker)
    return end


def must_roll(log: LogState, segment: Segment, header: BatchHeader, size_before: int, now_ms: int) -> bool:
    size = size_before + header.batch_length + LOG_OVERHEAD
    return segment.must_roll(size, header.last_offset, header.max_timestamp, now_ms, log.config)
