"""Carrying out one erase order in a log: each segment that holds a record of the order is written anew without it.

    erase_request    which segments may hold a record; the active one is rolled before
    erase            searches each of them, and rewrites it if it holds one; the driver swaps it in

As compaction does, a rewritten segment keeps its base offset, and each batch its offsets, producer, sequences, epochs
and codec; the checksum and the maximum timestamp are those of the records that stay. A batch that loses all its records
stays as a header: a replay of the log finds each sequence, and each transaction that is open, as before, and no segment
ends before its last offset. Markers and the transaction index stay as they are. A batch without a record of the order
is copied byte by byte.

`erase` is a generator that runs in a worker process, as `clean` does, and a crash leaves the same files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run
from moldau.protocol.primitives import MalformedMessage, crc32c
from moldau.protocol.record_batch import BatchHeader, TimestampType
from moldau.storage.compaction.batch_cleaner import emptied_batch, rewritten_batch
from moldau.storage.compaction.cleaning import in_steps
from moldau.storage.compaction.request import BytesMoved, LogChanged
from moldau.storage.compaction.segments import (
    CleanedBatch,
    CleanedSegment,
    SourceSegment,
    checked_batches,
    runs_of_batch,
)
from moldau.storage.erasure.kept_records import kept_records
from moldau.storage.files.port import FileSystem
from moldau.storage.log.log_state import LogState
from moldau.storage.log.segment_swap import SegmentCleaned, SegmentSize
from moldau.storage.log.unfinished_cleaning import remove_cleaned
from moldau.storage.segment.sparse_index import NO_TIMESTAMP

PIECES_A_STEP = 16
"""The number of pieces of a segment that are read between two events. At each event the worker process waits for the
driver."""


class SegmentToErase(NamedTuple):
    """A segment in whose offsets an erase order names records."""

    known: SegmentSize
    end_offset: int
    """The base offset of the segment after it."""
    before: SegmentSize | None
    """The segment before it in the log; None for the first segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseRequest:
    """The request to carry out one erase order in one log."""

    directory: str
    truncation_count: int
    """The truncation count of the log at the time of the request. The swap refuses the rewritten segments if the count
    has changed."""
    segments: tuple[SegmentToErase, ...]
    runs: tuple[Run, ...]
    """The runs of offsets to erase, sorted and disjoint."""
    index_interval_bytes: int
    expanded_bytes_max: int
    expanded_record_bytes_max: int
    compression_type: Codec | None
    compression_level: int | None
    io_buffer_size: int


class SegmentErased(NamedTuple):
    """An event: a segment without the records of the erase order is written and synced."""

    cleaned: SegmentCleaned
    erased: tuple[Run, ...]
    """The offsets of the erased records."""
    records_erased: int
    crc_before: int
    """CRC-32C of the .log file before the erasure."""
    crc_after: int
    max_timestamp: int
    """The largest timestamp (ms) of the remaining records; `NO_TIMESTAMP` if none remains."""


EraseEvent: TypeAlias = BytesMoved | SegmentErased


def erase_request(log: LogState, runs: Sequence[Run], io_buffer_size: int) -> EraseRequest:
    """Make the request to erase runs of offsets from a log. The runs are sorted and disjoint, and end before the active
    segment."""
    segments = log.segments
    assert runs[-1].last < log.active.base_offset, "the active segment is rolled first"
    config = log.config
    found = []
    for slot, segment in enumerate(segments[:-1]):
        end_offset = segments[slot + 1].base_offset
        if holds_offset(runs, segment.base_offset, end_offset):
            before = SegmentSize(segments[slot - 1].base_offset, segments[slot - 1].size) if slot else None
            found.append(SegmentToErase(SegmentSize(segment.base_offset, segment.size), end_offset, before))
    return EraseRequest(
        directory=log.directory,
        truncation_count=log.truncation_count,
        segments=tuple(found),
        runs=tuple(runs),
        index_interval_bytes=config.index_interval_bytes,
        expanded_bytes_max=config.expanded_bytes_max,
        expanded_record_bytes_max=config.expanded_record_bytes_max,
        compression_type=config.compression_type,
        compression_level=config.compression_level,
        io_buffer_size=io_buffer_size,
    )


def holds_offset(runs: Sequence[Run], first_offset: int, end_offset: int) -> bool:
    """Whether one of the runs has an offset in [first_offset, end_offset)."""
    slot = bisect_right(runs, first_offset, key=lambda run: run.first) - 1
    if slot >= 0 and runs[slot].last >= first_offset:
        return True
    return slot + 1 < len(runs) and runs[slot + 1].first < end_offset


def erase(fs: FileSystem, request: EraseRequest) -> Iterator[EraseEvent]:
    """Rewrite the segments that hold records of the erase order, from the oldest on.

    The driver swaps in each rewritten segment, in the order of the events. Raises OSError; `MalformedMessage` if a
    batch is damaged; `LogChanged` if a segment is no longer as the request describes it.
    """
    remove_cleaned(fs, request.directory)
    step_size = PIECES_A_STEP * request.io_buffer_size
    rewritten: dict[int, SegmentSize] = {}
    for target in request.segments:
        source = SourceSegment(fs, request.directory, target.known)
        search = SegmentSearch(request, source)
        yield from in_steps(search.moves(), step_size)
        if not search.has_found:
            continue
        rewriting = SegmentRewriting(fs, request, source)
        try:
            yield from in_steps(rewriting.moves(), step_size)
            suffixes = rewriting.cleaned.finish()
        except (OSError, MalformedMessage, LogChanged):
            rewriting.cleaned.discard()
            raise
        finally:
            rewriting.cleaned.close()
        before = None if target.before is None else rewritten.get(target.before.base_offset, target.before)
        size = rewriting.cleaned.size
        rewritten[source.base_offset] = SegmentSize(source.base_offset, size)
        yield SegmentErased(
            SegmentCleaned(
                request.directory, request.truncation_count, (target.known,), target.end_offset, before, size, suffixes
            ),
            tuple(rewriting.erased),
            sum(run.last - run.first + 1 for run in rewriting.erased),
            rewriting.crc_before,
            rewriting.crc_after,
            rewriting.max_timestamp,
        )


class SegmentSearch:
    """The search of one segment for a record that an erase order names. Only batches with offsets of the order are
    decoded."""

    def __init__(self, request: EraseRequest, source: SourceSegment) -> None:
        self._request = request
        self._source = source
        self.has_found = False

    def moves(self) -> Iterator[BytesMoved]:
        request, source = self._request, self._source
        slot = bisect_left(request.runs, source.base_offset, key=lambda run: run.last)
        position = source.position_of(request.runs[slot].first)
        for piece in source.pieces(position, request.io_buffer_size):
            yield BytesMoved(len(piece), 0)
            for header, batch in checked_batches(piece):
                named = named_in(request.runs, header)
                if named and any(
                    kept_records(bytes(run), header.base_offset, named).erased
                    for run, _ in runs_of_batch(request, header, batch)
                ):
                    self.has_found = True
                    return


class SegmentRewriting:
    """The copy of one segment without the records that an erase order names."""

    def __init__(self, fs: FileSystem, request: EraseRequest, source: SourceSegment) -> None:
        self._request = request
        self._source = source
        self.cleaned = CleanedSegment(fs, request.directory, source.base_offset, request.index_interval_bytes)
        self.erased: list[Run] = []
        self.crc_before = 0
        self.crc_after = 0
        self.max_timestamp = NO_TIMESTAMP

    def moves(self) -> Iterator[BytesMoved]:
        for aborted in self._source.aborted_transactions():
            self.cleaned.note_aborted(aborted)
        for piece in self._source.pieces(0, self._request.io_buffer_size):
            kept = [self._without_named(header, batch) for header, batch in checked_batches(piece)]
            size_before = self.cleaned.size
            self.cleaned.append(kept)
            self.crc_before = crc32c(piece, self.crc_before)
            for each in kept:
                self.crc_after = crc32c(each.data, self.crc_after)
                self.max_timestamp = max(self.max_timestamp, each.max_timestamp)
            yield BytesMoved(len(piece), self.cleaned.size - size_before)

    def _without_named(self, header: BatchHeader, batch: memoryview) -> CleanedBatch:
        """Return the batch without the records of the erase order, or the batch itself if the order names none of its
        records."""
        request = self._request
        named = named_in(request.runs, header)
        if not named:
            return CleanedBatch(batch, header.last_offset, header.max_timestamp)
        parts: list[bytes] = []
        kept_count, deltas, erased = 0, list[int](), list[int]()
        for run, _ in runs_of_batch(request, header, batch):
            kept = kept_records(bytes(run), header.base_offset, named)
            parts += kept.parts
            kept_count += kept.records_count
            if kept.max_timestamp_delta is not None:
                deltas.append(kept.max_timestamp_delta)
            erased += kept.erased
        if not erased:
            return CleanedBatch(batch, header.last_offset, header.max_timestamp)
        for offset in erased:
            self._note_erased(offset)
        if not deltas:
            return emptied_batch(header)
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        max_timestamp = header.max_timestamp if is_append_time else header.base_timestamp + max(deltas)
        level = request.compression_level if header.codec is request.compression_type else None
        return rewritten_batch(
            header, b"".join(parts), kept_count, header.attributes, header.base_timestamp, max_timestamp, level
        )

    def _note_erased(self, offset: int) -> None:
        if self.erased and self.erased[-1].last == offset - 1:
            self.erased[-1] = Run(self.erased[-1].first, offset)
        else:
            self.erased.append(Run(offset, offset))


def named_in(runs: Sequence[Run], header: BatchHeader) -> Sequence[Run]:
    """The runs that have an offset of the batch; none if it is a control batch or an empty batch."""
    if header.is_control or header.records_count <= 0:
        return ()
    first = bisect_left(runs, header.base_offset, key=lambda run: run.last)
    return runs[first : bisect_left(runs, header.next_offset, lo=first, key=lambda run: run.first)]
