"""Cleaning groups of remote segments: read the keys of a part of the log, then write each group without the records
that these keys supersede.

    map sources   the files whose keys the groups are cleaned against, local or downloaded
    groups        remote segments that become one segment, written as `.cleaned` files into the directory of the pass

`clean_remote_segments` is a generator that only works on files, as `cleaning.clean_segments` is. At `DownloadNeeded`
the driver downloads the file, then asks for the next event; at `GroupCleaned` the driver uploads the result. The
generator removes each file once the next event is asked for. A stopped pass leaves files only in its directory, which
the next pass and the next start remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from moldau.protocol.record_batch import BatchHeader
from moldau.storage.compaction.batch_cleaner import BatchCleaner, CleanedTransactions
from moldau.storage.compaction.cleaning import index_piece
from moldau.storage.compaction.offset_map import ENTRY_SIZE, OffsetMap
from moldau.storage.compaction.request import BytesProcessed, CleaningRequest, CleaningStatistics
from moldau.storage.compaction.segments import (
    CleanedBatch,
    CleanedSegment,
    batches_between,
    file_pieces,
    verified_batches,
)
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.sparse_index import NO_TIMESTAMP
from moldau.storage.segment.transaction_index import AbortedTransaction


class SourceRange(NamedTuple):
    """The batches of one .log file that have an offset in [first_offset, end_offset)."""

    path: str
    size: int
    """Size of the file in bytes."""
    first_offset: int
    end_offset: int
    """The end of the range (exclusive)."""
    is_downloaded: bool
    """Whether the file comes from remote storage: the driver downloads it at `DownloadNeeded`, and the generator
    removes it after the read."""


class RemoteGroupRequest(NamedTuple):
    """Neighbouring remote segments that are cleaned into one."""

    start_offset: int
    end_offset: int
    """The end of the group's offsets (exclusive)."""
    sources: tuple[SourceRange, ...]
    """The files with the batches of the group, in the order of their offsets; no batch is in two of them."""
    cleaned_end_offset: int
    """The offset up to which the sources are clean (exclusive): below it, no record of the sources has a later record
    with the same key.
    """
    is_copied: bool
    """Whether the batches are copied unchanged: the sources are local segments that are clean up to the end of the
    offset map.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCleaningRequest:
    """The request for one pass over remote segments of one log."""

    base_request: CleaningRequest
    """Times, limits and codecs of the cleaning. The map begins at `first_dirty_offset`; the results go into
    `directory`; `segments` is empty.
    """
    map_sources: tuple[SourceRange, ...]
    map_end_offset: int
    """The end (exclusive) of the map, if it does not get full before."""
    groups: tuple[RemoteGroupRequest, ...]
    aborted: tuple[AbortedTransaction, ...]
    """The aborted transactions of the log that may have data or the marker in one of the sources."""


class DownloadNeeded(NamedTuple):
    """An event: the driver has to download the file of `source` before it asks for the next event."""

    source: SourceRange


class GroupCleaned(NamedTuple):
    """An event: the cleaned segment of one group is written. The generator removes its files when the next event is
    asked for."""

    number: int
    """The index of the group in the request's `groups`."""
    cleaned_end_offset: int
    size: int
    max_timestamp_ms: int
    """The largest timestamp (ms) of a record; `NO_TIMESTAMP` if no record has one."""
    is_unchanged: bool
    """Whether the batches of the cleaned segment are those of the sources, byte for byte."""
    paths: dict[str, str]
    """The paths of the files of the cleaned segment, by suffix."""


class RemoteCleaningDone(NamedTuple):
    """The last event of a pass over remote segments."""

    statistics: CleaningStatistics


RemoteCleaningEvent: TypeAlias = BytesProcessed | DownloadNeeded | GroupCleaned | RemoteCleaningDone


def clean_remote_segments(fs: FileSystem, request: RemoteCleaningRequest) -> Iterator[RemoteCleaningEvent]:
    """Clean each group of remote segments, in the order of the request. There is no `GroupCleaned` for a group if the
    offset map ends at or before the offset up to which the group is already clean.

    Raises OSError; `MalformedMessage` if a batch is damaged; `LogChanged` if a local file is not as the request
    describes it any more.
    """
    rules, statistics = request.base_request, CleaningStatistics()
    offsets = OffsetMap(rules.limits.dedupe_buffer_size, rules.limits.load_factor, rules.salt)
    yield from _build_map(fs, request, offsets)
    map_end_offset = offsets.latest_offset + 1
    for number, group in enumerate(request.groups):
        cleaned_end_offset = group.cleaned_end_offset if group.is_copied else map_end_offset
        if group.is_copied or group.cleaned_end_offset < map_end_offset:
            yield from _clean_group(fs, request, number, cleaned_end_offset, offsets, statistics)
    statistics.buffer_utilization = offsets.count * ENTRY_SIZE / rules.limits.dedupe_buffer_size
    yield RemoteCleaningDone(statistics)


def _build_map(fs: FileSystem, request: RemoteCleaningRequest, offsets: OffsetMap) -> Iterator[RemoteCleaningEvent]:
    rules = request.base_request
    transactions = CleanedTransactions(each for each in request.aborted if each.last_offset >= rules.first_dirty_offset)
    offsets.raise_latest_offset(rules.first_dirty_offset - 1)
    for source in request.map_sources:
        if source.is_downloaded:
            yield DownloadNeeded(source)
        is_full = False
        for piece in _pieces(fs, source, rules.limits.io_buffer_size):
            is_full = not index_piece(rules, piece, transactions, offsets)
            yield BytesProcessed(len(piece), 0)
            if is_full:
                break
        if source.is_downloaded:
            fs.unlink(source.path)
        if is_full:
            return
        offsets.raise_latest_offset(source.end_offset - 1)
    offsets.raise_latest_offset(request.map_end_offset - 1)


def _clean_group(
    fs: FileSystem,
    request: RemoteCleaningRequest,
    number: int,
    cleaned_end_offset: int,
    offsets: OffsetMap,
    statistics: CleaningStatistics,
) -> Iterator[RemoteCleaningEvent]:
    rules, group = request.base_request, request.groups[number]
    clean: Callable[[BatchHeader, memoryview], CleanedBatch | None]
    transactions = CleanedTransactions(
        (each for each in request.aborted if each.last_offset >= group.start_offset),
        keeps_from=0 if group.is_copied else rules.tombstones_end_offset,
    )
    if group.is_copied:
        clean = partial(_as_it_is, transactions)
    else:
        clean = BatchCleaner(rules, offsets, transactions, statistics).clean_batch
    cleaned = CleanedSegment(fs, rules.directory, group.start_offset, rules.index_interval_bytes)
    transactions.on_abort_marker_kept = cleaned.add_aborted_transaction
    max_timestamp_ms, is_unchanged = NO_TIMESTAMP, not group.is_copied
    try:
        for source in group.sources:
            if source.is_downloaded:
                yield DownloadNeeded(source)
            for piece in _pieces(fs, source, rules.limits.io_buffer_size):
                kept: list[CleanedBatch] = []
                for header, batch in verified_batches(piece):
                    what_stays = clean(header, batch)
                    is_unchanged &= what_stays is not None and what_stays.data is batch and batch.obj is piece.obj
                    if what_stays is not None:
                        kept.append(what_stays)
                        max_timestamp_ms = max(max_timestamp_ms, what_stays.max_timestamp)
                size_before = cleaned.size
                if kept:
                    cleaned.append(kept)
                statistics.bytes_read += len(piece)
                statistics.bytes_written += cleaned.size - size_before
                yield BytesProcessed(len(piece), cleaned.size - size_before)
            if source.is_downloaded:
                fs.unlink(source.path)
        paths = {suffix: cleaned.path(suffix) for suffix in cleaned.finish()}
        yield GroupCleaned(number, cleaned_end_offset, cleaned.size, max_timestamp_ms, is_unchanged, paths)
    finally:
        cleaned.discard()


def _as_it_is(transactions: CleanedTransactions, header: BatchHeader, batch: memoryview) -> CleanedBatch:
    """Return a batch of a local segment unchanged, because the segment is clean already. Report the batch to
    `transactions`, which enter aborted transactions in the transaction index."""
    if header.is_control:
        transactions.observe_control_batch(header, batch)
    else:
        transactions.observe_data_batch(header)
    return CleanedBatch(batch, header.last_offset, header.max_timestamp)


def _pieces(fs: FileSystem, source: SourceRange, piece_size: int) -> Iterator[memoryview]:
    for piece in file_pieces(fs, source.path, source.size, 0, piece_size):
        part = batches_between(piece, source.first_offset, source.end_offset)
        if len(part):
            yield part
