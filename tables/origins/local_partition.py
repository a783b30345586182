"""A replica of a partition in a log directory, with the state that its files and the checkpoints had when they were
read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import MAGIC
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.log_paths import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    offset_of_name,
)
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.batch_scan import BatchPlace, iterate_batch_headers
from moldau.storage.segment.segment_listing import (
    ListedSegment,
    PositionRange,
    first_offset_at,
    largest_timestamp,
    list_segments,
    locate_batch,
    offset_index_of,
    split_range,
)
from moldau.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from moldau.tables.origins.local_segments import LocalSegments, is_same_file
from moldau.tables.origins.open_transactions import is_abort, last_stable_offset, newest_snapshot
from moldau.tables.origins.port import OFFSET_MAX, SegmentPart, StoredSegment

if TYPE_CHECKING:
    from moldau.storage.tiered.layout import SegmentObject

SOURCE: Final = LocalSegments()
INDEX_SUFFIXES: Final = SEGMENT_SUFFIXES[1:]
_start_offset = attrgetter("start_offset")


class LocalPartition:
    """The `PartitionOrigin` of a replica in a log directory.

    `directory`: the directory of the partition; `node_id`: the id of the broker, if it is known.
    """

    def __init__(
        self,
        fs: FileSystem,
        key: TopicPartition,
        directory: str,
        listed: Sequence[ListedSegment],
        *,
        log_start_offset: int,
        high_watermark: int | None,
        topic_id: bytes | None = None,
        node_id: int | None = None,
        may_have_gaps: bool = False,
        epochs_start: int | None = None,
    ) -> None:
        """`listed`: the segments of the replica. `epochs_start`: the offset at which the first known leader epoch
        begins; None if no epoch is known."""
        self._fs = fs
        self.key = key
        self.directory = directory
        self.topic_id = topic_id
        self.node_id = node_id
        self.source = SOURCE
        self.tier = "local"
        self.log_start_known = log_start_offset
        self.may_have_gaps = may_have_gaps
        self.incomplete: Sequence[SegmentObject] = ()
        self.lost_segments: Sequence[int] = orphan_indexes(fs, directory, listed) if may_have_gaps else ()
        self.log_start_offset = max(log_start_offset, former_log_start(fs, directory, listed, epochs_start))
        self.is_checkpointed = high_watermark is not None
        self.high_watermark = max(self.log_start_offset, high_watermark or 0)
        self.segments: Sequence[StoredSegment] = tuple(self._stored(each) for each in listed)

    @property
    def place(self) -> str:
        return self.directory

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    def last_stable_offset(self) -> int:
        return last_stable_offset(self._fs, self.directory, self.segments, self.log_start_known, self.high_watermark)

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start_offset, end_offset), sorted by first offset. Raises OSError,
        and its subclass `CorruptTransactionIndex`."""
        names = self._fs.list_directory(self.directory)
        bases = sorted(offset_of_name(name) for name in names if name.endswith(TRANSACTION_INDEX_SUFFIX))
        first = self.segments[self._slot_of(start_offset)].start_offset if self.segments else start_offset
        found: list[AbortedTransaction] = []
        for base in bases:
            if base < first:
                continue
            path = f"{self.directory}/{offset_name(base, TRANSACTION_INDEX_SUFFIX)}"
            more, is_complete = TransactionIndex(self._fs, path).overlapping_transactions(start_offset, end_offset)
            found += more
            if is_complete:
                break
        if self.segments and start_offset < self.segments[0].start_offset:
            found += self._aborted_since_start({each.last_offset for each in found})
        return sorted(found, key=lambda each: each.first_offset)

    def _aborted_since_start(self, known: set[int]) -> list[AbortedTransaction]:
        """Find the aborted transactions that were open at the beginning of the local files, by their markers.

        Their first records are in another source of segments, whose tasks do not see the markers in these files.
        `known`: the offsets of the markers that the transaction indexes name.
        """
        first = self.segments[0].start_offset
        _, opened = newest_snapshot(self._fs, self.directory, first, first)
        found = []
        for segment in self.segments:
            if not opened or segment.start_offset >= self.high_watermark:
                break
            file = self._fs.open(segment.name, read_only=True)
            try:
                for position, header in iterate_batch_headers(file, 0, segment.size):
                    if header.base_offset >= self.high_watermark or not opened:
                        break
                    if not (header.is_control and header.is_transactional and header.producer_id in opened):
                        continue
                    first_offset, marker = opened.pop(header.producer_id), header.base_offset
                    if marker not in known and is_abort(file.pread(header.size, position)):
                        found.append(AbortedTransaction(header.producer_id, first_offset, marker, first_offset))
            finally:
                file.close()
        return found

    def cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> list[SegmentPart]:
        """Return the batches with offsets in [start_offset, end_offset), in cuts of about `slice_size` bytes
        (`PartitionOrigin.cuts`). Raises `MalformedMessage`, which names the file, and OSError."""
        try:
            return self._cuts(segment, start_offset, end_offset, slice_size)
        except MalformedMessage as malformed:
            raise MalformedMessage(f"{segment.name}: {malformed}") from None

    def _cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> list[SegmentPart]:
        listed = self._listed(segment)
        start_position = 0
        if start_offset > segment.start_offset:
            place = locate_batch(self._fs, listed, start_offset)
            if place is None:
                return []
            start_position = place.position
        end_position, last_offset = segment.size, None
        if segment.is_growing or end_offset < segment.end_offset:
            last = self._last_batch_before(listed, end_offset)
            end_position, last_offset = (last.position + last.size, last.last_offset) if last else (0, None)
        if start_position >= end_position:
            return []
        if end_position - start_position <= slice_size:
            return [SegmentPart(start_position, end_position, last_offset)]
        pieces = split_range(self._fs, listed, PositionRange(start_position, end_position), slice_size)
        last_piece = len(pieces) - 1
        return [SegmentPart(*each, last_offset if index == last_piece else None) for index, each in enumerate(pieces)]

    def start_cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> None:
        """Do nothing: `cuts` does not wait for a storage."""

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset below the high watermark whose record is at or after `timestamp_ms`; None if there is none.
        Raises OSError and `MalformedMessage`."""
        for segment in self.segments[self._slot_of(self.log_start_offset) :]:
            if segment.start_offset >= self.high_watermark:
                break
            found = first_offset_at(
                self._fs, self._listed(segment), timestamp_ms, self.log_start_offset, self.high_watermark
            )
            if found is not None:
                return found
        return None

    def largest_timestamp(self, segment: StoredSegment) -> int | None:
        return largest_timestamp(self._fs, self._listed(segment))

    def has_changed(self) -> bool:
        try:
            listed = list_segments(self._fs, self.directory)
        except FileNotFoundError:
            return True
        now = {each.base_offset: (each.stamp, each.next_base_offset) for each in listed}
        for segment in self.segments[:-1]:
            if now.get(segment.start_offset) != (segment.stamp, segment.end_offset):
                return True
        if not self.segments:
            return False
        last = self.segments[-1]
        stamp, _ = now.get(last.start_offset, (None, None))
        return stamp is None or not is_same_file(stamp, last)

    def _stored(self, listed: ListedSegment) -> StoredSegment:
        is_growing = listed.next_base_offset is None
        end_offset = listed.next_base_offset
        if end_offset is None:
            end_offset = max(listed.base_offset, self.high_watermark)
        return StoredSegment(
            listed.base_offset,
            end_offset,
            listed.size,
            listed.path(LOG_SUFFIX),
            is_growing,
            batches_start=listed.base_offset,
            batches_end=OFFSET_MAX if is_growing else end_offset,
            is_dense=not self.may_have_gaps,
            stamp=listed.stamp,
        )

    def _listed(self, segment: StoredSegment) -> ListedSegment:
        following = None if segment.is_growing else segment.end_offset
        return ListedSegment(self.directory, segment.start_offset, segment.size, following)

    def _slot_of(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=_start_offset) - 1)

    def _last_batch_before(self, listed: ListedSegment, end_offset: int) -> BatchPlace | None:
        """Return the last batch of a segment that begins before `end_offset`; None if there is none."""
        index = offset_index_of(self._fs, listed)
        position = index.position_at_or_before(end_offset - 1) if index else 0
        opened = OpenFile(self._fs.open(listed.path(), read_only=True))
        last = None
        for found, header in iterate_batch_headers(opened.file, position, listed.size):
            # Only its contents tell the first offset of a compressed message of format 0 or 1.
            may_begin_earlier = header.magic != MAGIC and header.is_compressed
            if header.base_offset >= end_offset and not may_begin_earlier:
                break
            last = BatchPlace(found, header.size, header.base_offset, header.last_offset)
            if header.base_offset >= end_offset:
                break
        return last


def orphan_indexes(fs: FileSystem, directory: str, listed: Sequence[ListedSegment]) -> list[int]:
    """The base offsets of the indexes, after the first segment, that have no .log file."""
    known = {each.base_offset for each in listed}
    names = [name for name in fs.list_directory(directory) if name.endswith(INDEX_SUFFIXES)]
    first = listed[0].base_offset if listed else 0
    return sorted({base for name in names if (base := offset_of_name(name)) not in known and base > first})


def former_log_start(fs: FileSystem, directory: str, listed: Sequence[ListedSegment], epochs_start: int | None) -> int:
    """The start of the log by its leader epochs, if it is before the first segment; otherwise the offset of that
    segment.

    A broker that moves the start of a log also truncates its leader epochs. So if the first leader epoch begins before
    the first segment, the offsets between them are in remote segments, or their segments are lost. But retention
    renames segments a moment before the broker writes the epochs: while renamed files exist, the result is the offset
    of the first segment.
    """
    first = listed[0].base_offset if listed else 0
    if epochs_start is None or (listed and epochs_start >= first):
        return first
    ending = LOG_SUFFIX + DELETED_SUFFIX
    deleted = [offset_of_name(name) for name in fs.list_directory(directory) if name.endswith(ending)]
    return first if any(epochs_start <= each < first for each in deleted) else epochs_start
