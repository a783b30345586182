"""Carries out erase orders in a log: rewrites each segment that has a record named by an order, without these records.

    erase_request    which segments may hold a record; the active one is rolled before
    erase_segments   searches each of them, and rewrites it if it holds one; the driver swaps it in
    serve_erasing    runs `erase_segments` for one request after the other, in one worker process

All orders of a request are carried out in one pass: a segment is rewritten once, without the records of any of them. An
offset that two orders name counts as erased by the older one, as if they were carried out one after the other.

As in compaction, a rewritten segment keeps its base offset, and each batch keeps its offsets, producer, sequences,
epochs and codec; only its checksum and maximum timestamp are computed anew. A batch that loses all of its records stays
as a header. So a replay of the log finds all sequences and open transactions as before, and the segment keeps its last
offset. Markers and the transaction index stay as they are. A batch without a record of the order is copied byte by
byte.

`erase_segments` is a generator that runs in a worker process, as `clean_segments` does, and a crash leaves the same
files. The runs of offsets go to the process and back as bytes (`packed_runs`), because the event loop packs them.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias, cast

from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run, packed_runs, unpacked_runs
from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import BatchHeader, TimestampType
from moldau.storage.compaction.batch_cleaner import header_only_batch, rewritten_batch
from moldau.storage.compaction.cleaning import join_small_progress
from moldau.storage.compaction.request import BytesProcessed, LogChanged
from moldau.storage.compaction.segments import (
    CleanedBatch,
    CleanedSegment,
    SourceSegment,
    record_runs_of,
    verified_batches,
)
from moldau.storage.erasure.kept_records import kept_records
from moldau.storage.files.port import FileSystem
from moldau.storage.log.log_state import LogState
from moldau.storage.log.segment_swap import SegmentCleaned, SegmentSize
from moldau.storage.log.unfinished_cleaning import remove_cleaned
from moldau.storage.segment.sparse_index import NO_TIMESTAMP

PIECES_PER_EVENT = 16
"""The number of pieces of a segment that are read between two events. At each event the worker process waits for the
driver."""
_base_offset = attrgetter("base_offset")


class SegmentToErase(NamedTuple):
    """A segment that may contain records which an erase order names."""

    segment: SegmentSize
    end_offset: int
    """The base offset of the segment after it."""
    previous_segment: SegmentSize | None
    """The segment before it in the log; None for the first segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseRequest:
    """The request to carry out erase orders in one log."""

    directory: str
    truncation_count: int
    """The truncation count of the log at the time of the request. The swap refuses the rewritten segments if the count
    has changed."""
    segments: tuple[SegmentToErase, ...]
    orders: tuple[bytes, ...]
    """For each erase order, the oldest first: its packed runs of offsets (`packed_runs`), sorted and disjoint."""
    index_interval_bytes: int
    expanded_bytes_max: int
    expanded_record_bytes_max: int
    compression_type: Codec | None
    compression_level: int | None
    io_buffer_size: int


class ErasedRecords(NamedTuple):
    """The records that one erase order erased from one segment."""

    runs: bytes
    """The offsets of the records, packed by `packed_runs`."""
    records_count: int


class SegmentErased(NamedTuple):
    """An event: a segment without the records of the erase orders is written and synced."""

    cleaned: SegmentCleaned
    erased: tuple[ErasedRecords, ...]
    """The erased records of each order, in the order of the request."""
    crc_before: int
    """CRC-32C of the .log file before the erasure."""
    crc_after: int
    max_timestamp: int
    """The largest timestamp (ms) of the remaining records; `NO_TIMESTAMP` if none remains."""


class EraseRequestDone(NamedTuple):
    """An event of `serve_erasing`: the request is done, and the next one is expected."""


EraseEvent: TypeAlias = BytesProcessed | SegmentErased


def erase_request(
    log: LogState, orders: Sequence[bytes], first_offset: int, last_offset: int, io_buffer_size: int
) -> EraseRequest:
    """Make the request to carry out erase orders in a log. `orders` are their packed runs, the oldest order first;
    `first_offset` and `last_offset` (inclusive) are the bounds of all runs, which end before the active segment."""
    segments = log.segments
    assert last_offset < log.active.base_offset, "the active segment is rolled first"
    config = log.config
    found = []
    first_slot = max(0, bisect_right(segments, first_offset, key=_base_offset) - 1)
    for slot in range(first_slot, bisect_right(segments, last_offset, key=_base_offset)):
        segment, end_offset = segments[slot], segments[slot + 1].base_offset
        before = SegmentSize(segments[slot - 1].base_offset, segments[slot - 1].size) if slot else None
        found.append(SegmentToErase(SegmentSize(segment.base_offset, segment.size), end_offset, before))
    return EraseRequest(
        directory=log.directory,
        truncation_count=log.truncation_count,
        segments=tuple(found),
        orders=tuple(orders),
        index_interval_bytes=config.index_interval_bytes,
        expanded_bytes_max=config.expanded_bytes_max,
        expanded_record_bytes_max=config.expanded_record_bytes_max,
        compression_type=config.compression_type,
        compression_level=config.compression_level,
        io_buffer_size=io_buffer_size,
    )


def runs_overlap(runs: Sequence[Run], first_offset: int, end_offset: int) -> bool:
    """Whether one of the runs has an offset in [first_offset, end_offset)."""
    slot = bisect_right(runs, first_offset, key=lambda run: run.first) - 1
    if slot >= 0 and runs[slot].last >= first_offset:
        return True
    return slot + 1 < len(runs) and runs[slot + 1].first < end_offset


def serve_erasing(fs: FileSystem) -> Generator[EraseEvent | EraseRequestDone, EraseRequest | None, None]:
    """Carry out the requests that are sent to this generator, one after the other.

    It first yields `EraseRequestDone`, and expects a request then. After that come the events of `erase_segments`, and
    `EraseRequestDone` again. An exception of `erase_segments` ends the generator.
    """
    while True:
        request = yield EraseRequestDone()
        assert request is not None, "a request follows RequestDone"
        yield from erase_segments(fs, request)


def erase_segments(fs: FileSystem, request: EraseRequest) -> Iterator[EraseEvent]:
    """Rewrite the segments that hold records of the erase orders, from the oldest on.

    The driver swaps in each rewritten segment, in the order of the events. Raises OSError; `MalformedMessage` if a
    batch is damaged; `LogChanged` if a segment is no longer as the request describes it.
    """
    remove_cleaned(fs, request.directory)
    step_size = PIECES_PER_EVENT * request.io_buffer_size
    orders = [unpacked_runs(packed) for packed in request.orders]
    named = OffsetsToErase(union_of_runs(orders))
    rewritten: dict[int, SegmentSize] = {}
    for target in request.segments:
        if not runs_overlap(named.runs, target.segment.base_offset, target.end_offset):
            continue
        source = SourceSegment(fs, request.directory, target.segment)
        search = SegmentSearch(request, named, source, target.end_offset)
        yield from join_small_progress(search.search_segment(), step_size)
        if not search.has_found:
            continue
        rewriting = SegmentRewrite(fs, request, named, source)
        try:
            yield from join_small_progress(rewriting.rewrite_segment(), step_size)
            suffixes = rewriting.cleaned.finish()
        except (OSError, MalformedMessage, LogChanged):
            rewriting.cleaned.discard()
            raise
        finally:
            rewriting.cleaned.close()
        before = (
            None
            if target.previous_segment is None
            else rewritten.get(target.previous_segment.base_offset, target.previous_segment)
        )
        size = rewriting.cleaned.size
        rewritten[source.base_offset] = SegmentSize(source.base_offset, size)
        yield SegmentErased(
            SegmentCleaned(
                request.directory,
                request.truncation_count,
                (target.segment,),
                target.end_offset,
                before,
                size,
                suffixes,
            ),
            tuple(map(_as_sent, divide_among_orders(rewriting.erased_runs(), orders))),
            rewriting.crc_before,
            rewriting.crc_after,
            rewriting.max_timestamp,
        )


def _as_sent(runs: Sequence[Run]) -> ErasedRecords:
    return ErasedRecords(packed_runs(runs), sum(run.last - run.first + 1 for run in runs))


def union_of_runs(orders: Iterable[Sequence[Run]]) -> list[Run]:
    """Return the union of the runs of all orders, sorted and disjoint."""
    runs: list[Run] = []
    for run in sorted(run for order in orders for run in order):
        if runs and run.first <= runs[-1].last + 1:
            runs[-1] = Run(runs[-1].first, max(runs[-1].last, run.last))
        else:
            runs.append(run)
    return runs


def divide_among_orders(erased: Sequence[Run], orders: Sequence[Sequence[Run]]) -> list[Sequence[Run]]:
    """Assign each erased offset to the first order that names it. Returns the runs of each order, in the order of
    `orders`.

    `erased`: the erased offsets, each of which an order names. All runs are sorted and disjoint.
    """
    shares: list[Sequence[Run]] = []
    for order in orders[:-1]:
        share: list[Run] = []
        rest: list[Run] = []
        slot = bisect_left(order, erased[0].first, key=_last) if erased else 0
        for first, last in erased:
            at = first
            while at <= last:
                while slot < len(order) and order[slot].last < at:
                    slot += 1
                begin = min(order[slot].first, last + 1) if slot < len(order) else last + 1
                if begin > at:
                    rest.append(Run(at, begin - 1))
                    at = begin
                else:
                    end = min(order[slot].last, last)
                    share.append(Run(at, end))
                    at = end + 1
        shares.append(share)
        erased = rest
    return [*shares, erased]


def _last(run: Run) -> int:
    return run.last


class OffsetsToErase:
    """The offsets that the orders of a request erase, as sorted, disjoint runs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._firsts = [run.first for run in runs]
        self._lasts = [run.last for run in runs]

    def runs_in_batch(self, header: BatchHeader) -> Sequence[Run]:
        """The runs with an offset of the batch; none for a control batch or an empty batch."""
        if header.is_control or header.records_count <= 0:
            return ()
        first = bisect_left(self._lasts, header.base_offset)
        return self.runs[first : bisect_left(self._firsts, header.next_offset, lo=first)]

    def first_at_or_after(self, offset: int) -> int | None:
        """The first named offset at or after `offset`; None if there is none."""
        slot = bisect_left(self._lasts, offset)
        return None if slot == len(self.runs) else max(self.runs[slot].first, offset)


class SegmentSearch:
    """Searches one segment for a record to erase. Only pieces with offsets of an order are read, and only batches with
    such offsets are decoded."""

    def __init__(self, request: EraseRequest, named: OffsetsToErase, source: SourceSegment, end_offset: int) -> None:
        self._request = request
        self._named = named
        self._source = source
        self._end_offset = end_offset
        self.has_found = False

    def search_segment(self) -> Iterator[BytesProcessed]:
        source, offset, position = self._source, self._source.base_offset, 0
        while (wanted := self._named.first_at_or_after(offset)) is not None and wanted < self._end_offset:
            position = max(position, source.position_at_or_before(wanted))
            pieces = cast(
                "Generator[memoryview, None, None]", source.batch_pieces(position, self._request.io_buffer_size)
            )
            with contextlib.closing(pieces):
                piece = next(pieces, None)
            if piece is None:
                return
            position += len(piece)
            yield BytesProcessed(len(piece), 0)
            for header, batch in verified_batches(piece):
                offset = header.next_offset
                if self._has_named(header, batch):
                    self.has_found = True
                    return

    def _has_named(self, header: BatchHeader, batch: memoryview) -> bool:
        named = self._named.runs_in_batch(header)
        return bool(named) and any(
            kept_records(bytes(run), header.base_offset, named).erased
            for run, _ in record_runs_of(self._request, header, batch)
        )


class SegmentRewrite:
    """Copies one segment without the records to erase."""

    def __init__(self, fs: FileSystem, request: EraseRequest, named: OffsetsToErase, source: SourceSegment) -> None:
        self._request = request
        self._named = named
        self._source = source
        self.cleaned = CleanedSegment(fs, request.directory, source.base_offset, request.index_interval_bytes)
        self._erased: list[Run] = []
        self.crc_before = 0
        self.crc_after = 0
        self.max_timestamp = NO_TIMESTAMP

    def rewrite_segment(self) -> Iterator[BytesProcessed]:
        for aborted in self._source.aborted_transactions():
            self.cleaned.add_aborted_transaction(aborted)
        for piece in self._source.batch_pieces(0, self._request.io_buffer_size):
            kept = [self._without_named(header, batch) for header, batch in verified_batches(piece)]
            size_before = self.cleaned.size
            self.cleaned.append(kept)
            self.crc_before = crc32c(piece, self.crc_before)
            for each in kept:
                self.crc_after = crc32c(each.data, self.crc_after)
                self.max_timestamp = max(self.max_timestamp, each.max_timestamp)
            yield BytesProcessed(len(piece), self.cleaned.size - size_before)

    def _without_named(self, header: BatchHeader, batch: memoryview) -> CleanedBatch:
        """Return the batch without the records of the erase orders, or the batch itself if they name none of its
        records."""
        request = self._request
        named = self._named.runs_in_batch(header)
        if not named:
            return CleanedBatch(batch, header.last_offset, header.max_timestamp)
        parts: list[BytesLike] = []
        kept_count, deltas, erased = 0, list[int](), list[int]()
        for run, _ in record_runs_of(request, header, batch):
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
            return header_only_batch(header)
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        max_timestamp = header.max_timestamp if is_append_time else header.base_timestamp + max(deltas)
        level = request.compression_level if header.codec is request.compression_type else None
        return rewritten_batch(
            header, parts, kept_count, header.attributes, header.base_timestamp, max_timestamp, level
        )

    def erased_runs(self) -> list[Run]:
        """The offsets of the erased records, as runs that are sorted and disjoint."""
        is_ascending = all(later.first > earlier.last for earlier, later in pairwise(self._erased))
        return self._erased if is_ascending else union_of_runs([self._erased])

    def _note_erased(self, offset: int) -> None:
        if self._erased and self._erased[-1].last == offset - 1:
            self._erased[-1] = Run(self._erased[-1].first, offset)
        else:
            self._erased.append(Run(offset, offset))
