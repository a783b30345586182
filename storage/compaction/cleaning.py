"""One round of cleaning a log: put the keys of its dirty part into the offset map, then copy its segments without the
records that the map supersedes.

    build_offset_map       reads the dirty part from its start, until the map is full or the cleanable part ends
    group_segments         joins small neighbours into groups, from the start of the log to where the map ends
    clean_segment_group    copies each group into one new segment, without the records that are not kept

`clean_segments` is a generator, so that its driver can slow it down, stop it, or run it in steps. It runs in a worker
process, and reads and writes only the files of the request's segments and those of the cleaned segments. A round that
fails removes its unfinished cleaned segment. The next round removes the files of a stopped round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.protocol.primitives import MalformedMessage
from moldau.storage.compaction.batch_cleaner import BatchCleaner, CleanedTransactions
from moldau.storage.compaction.offset_map import ENTRY_SIZE, OffsetMap
from moldau.storage.compaction.request import (
    BytesProcessed,
    CleaningDone,
    CleaningEvent,
    CleaningRequest,
    CleaningStatistics,
    LogChanged,
)
from moldau.storage.compaction.segments import (
    CleanedBatch,
    CleanedSegment,
    SourceSegment,
    record_runs_of,
    verified_batches,
)
from moldau.storage.files.log_paths import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from moldau.storage.files.port import FileSystem
from moldau.storage.log.segment_swap import SegmentCleaned, SegmentSize
from moldau.storage.log.unfinished_cleaning import remove_cleaned
from moldau.storage.segment.segment import RELATIVE_OFFSET_MAX
from moldau.storage.segment.transaction_index import AbortedTransaction

SPARE_SLOTS: Final = 3
"""The slots of a map beyond the number of keys: at least one must stay free, and the others make up for rounding."""
PIECES_PER_EVENT: Final = 16
"""The number of segment pieces that are read per event. The worker process waits for the driver at each event."""


def clean_segments(fs: FileSystem, request: CleaningRequest) -> Iterator[CleaningEvent]:
    """Clean the segments of a request, up to the offset that the offset map reaches. The last event is `CleaningDone`.

    The driver swaps in each cleaned segment in the order of the events, and checkpoints the next dirty offset when all
    of them are durable. Raises OSError; `MalformedMessage` for a damaged batch; `LogChanged` if the segments differ
    from the request.
    """
    remove_cleaned(fs, request.directory)
    statistics = CleaningStatistics()
    limits = request.limits
    offsets = new_offset_map(request)
    sources = [SourceSegment(fs, request.directory, known) for known in request.segments]
    aborted = [*request.aborted_with_later_marker]
    for source in sources:
        aborted += source.aborted_transactions()
    step_size = PIECES_PER_EVENT * limits.io_buffer_size
    yield from join_small_progress(build_offset_map(request, sources, aborted, offsets), step_size)
    next_dirty_offset = max(offsets.latest_offset + 1, request.first_dirty_offset)
    cleaned_sources = [source for source in sources if source.base_offset < next_dirty_offset]
    groups = group_segments(
        cleaned_sources, request.segment_bytes, request.segment_index_bytes, request.first_uncleanable_offset
    )
    ends = [*(group[0].base_offset for group in groups[1:]), end_offset_of_sources(cleaned_sources, request)]
    before: SegmentSize | None = None
    transactions = CleanedTransactions(
        aborted, keeps_from=request.tombstones_end_offset, open_before=request.open_before
    )
    cleaner = BatchCleaner(request, offsets, transactions, statistics)
    for group, end_offset in zip(groups, ends, strict=True):
        cleaned = CleanedSegment(fs, request.directory, group[0].base_offset, request.index_interval_bytes)
        transactions.on_abort_marker_kept = cleaned.add_aborted_transaction
        try:
            yield from join_small_progress(clean_segment_group(request, group, cleaned, cleaner, statistics), step_size)
            suffixes = cleaned.finish()
        except (OSError, MalformedMessage, LogChanged):
            cleaned.discard()
            raise
        finally:
            cleaned.close()
        replaced = tuple(SegmentSize(source.base_offset, source.size) for source in group)
        yield SegmentCleaned(
            request.directory, request.truncation_count, replaced, end_offset, before, cleaned.size, suffixes
        )
        before = SegmentSize(cleaned.base_offset, cleaned.size)
    statistics.buffer_utilization = offsets.count * ENTRY_SIZE / limits.dedupe_buffer_size
    yield CleaningDone(next_dirty_offset, statistics)


def new_offset_map(request: CleaningRequest) -> OffsetMap:
    """Make the empty offset map of a round of cleaning. It has no more entries than the dirty part can fill, because
    the first use of each memory page is slow.
    """
    size, load_factor = request.limits.dedupe_buffer_size, request.limits.load_factor
    dirty_count = max(0, request.first_uncleanable_offset - request.first_dirty_offset)
    if load_factor > 0:
        size = min(size, (int(dirty_count / load_factor) + SPARE_SLOTS) * ENTRY_SIZE)
    return OffsetMap(size, load_factor, request.salt, request.first_dirty_offset, dirty_count)


def join_small_progress(moves: Iterator[BytesProcessed], size_min: int) -> Iterator[BytesProcessed]:
    """Yield the `BytesProcessed` events of `moves`, joined so that each except the last has at least `size_min`
    bytes.
    """
    bytes_read = bytes_written = 0
    for move in moves:
        bytes_read += move.bytes_read
        bytes_written += move.bytes_written
        if bytes_read + bytes_written >= size_min:
            yield BytesProcessed(bytes_read, bytes_written)
            bytes_read = bytes_written = 0
    if bytes_read:
        yield BytesProcessed(bytes_read, bytes_written)


def end_offset_of_sources(cleaned_sources: list[SourceSegment], request: CleaningRequest) -> int:
    """Return the end offset of `cleaned_sources`: the base offset of the next segment in the request, or the first
    uncleanable offset if there is no next one."""
    count = len(cleaned_sources)
    return request.segments[count].base_offset if count < len(request.segments) else request.first_uncleanable_offset


def build_offset_map(
    request: CleaningRequest,
    sources: list[SourceSegment],
    aborted: list[AbortedTransaction],
    offsets: OffsetMap,
) -> Iterator[BytesProcessed]:
    """Put the latest offset of each key of the dirty part into the offset map, until the map is full."""
    start_offset = request.first_dirty_offset
    transactions = CleanedTransactions(each for each in aborted if each.last_offset >= start_offset)
    ends = [*(source.base_offset for source in sources[1:]), request.first_uncleanable_offset]
    for source, end_offset in zip(sources, ends, strict=True):
        if end_offset <= start_offset:
            continue
        for piece in source.batch_pieces(source.position_at_or_before(start_offset), request.limits.io_buffer_size):
            is_full = not index_piece(request, piece, transactions, offsets)
            yield BytesProcessed(len(piece), 0)
            if is_full:
                return
        offsets.raise_latest_offset(end_offset - 1)  # An earlier round may have left a gap at the end of the segment.


def index_piece(
    request: CleaningRequest, piece: memoryview, transactions: CleanedTransactions, offsets: OffsetMap
) -> bool:
    """Put the keys of a piece (whole batches of a segment) into the offset map. Returns False if the map is full before
    the end of the piece."""
    start_offset = request.first_dirty_offset
    for header, batch in verified_batches(piece):
        if header.is_control:
            transactions.observe_control_batch(header, batch)
        elif not transactions.observe_data_batch(header):
            for run, count in record_runs_of(request, header, batch):
                read_count = offsets.index_run(run, count, header.base_offset, start_offset)
                if read_count < count:
                    return False
        if offsets.latest_offset > header.last_offset:
            offsets.forget_fates()  # A record lies past the end of its batch, among the offsets of the next batch.
        if header.last_offset >= start_offset:
            offsets.raise_latest_offset(header.last_offset)
    return True


def clean_segment_group(
    request: CleaningRequest,
    group: list[SourceSegment],
    cleaned: CleanedSegment,
    cleaner: BatchCleaner,
    statistics: CleaningStatistics,
) -> Iterator[BytesProcessed]:
    """Write the batches of a group of segments into the cleaned segment, without the records that the
    cleaner removes."""
    for source in group:
        for piece in source.batch_pieces(0, request.limits.io_buffer_size):
            kept: list[CleanedBatch] = []
            for header, batch in verified_batches(piece):
                what_stays = cleaner.clean_batch(header, batch)
                if what_stays is not None:
                    kept.append(what_stays)
            size_before = cleaned.size
            if kept:
                cleaned.append(kept)
            written = cleaned.size - size_before
            statistics.bytes_read += len(piece)
            statistics.bytes_written += written
            yield BytesProcessed(len(piece), written)


def group_segments(
    segments: list[SourceSegment], segment_bytes: int, segment_index_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """Put neighbouring segments into groups that each fit into one segment. The .log files and each kind of index must
    stay within the limits, and the span of the offsets within the 31 bits of an index entry. Raises OSError."""
    groups: list[list[SourceSegment]] = []
    sizes = [0, 0, 0]
    limits = [segment_bytes, segment_index_bytes, segment_index_bytes]
    for number, segment in enumerate(segments):
        added = [segment.size, segment.file_size(OFFSET_INDEX_SUFFIX), segment.file_size(TIME_INDEX_SUFFIX)]
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset
        grown = [have + more for have, more in zip(sizes, added, strict=True)]
        if (
            groups
            and all(size <= limit for size, limit in zip(grown, limits, strict=True))
            # The span does not limit an empty segment, which has no index entries. Otherwise one empty segment would
            # stay for every 2^31 offsets.
            and (not segment.size or behind - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
            sizes = grown
        else:
            groups.append([segment])
            sizes = added
    return groups
