"""The remote log of one partition: its segments in remote storage, by leader epoch, as the metadata records say.

Only `replay` changes the state, in the order of the records in the metadata topic, so every broker that reads them has
the same state. A record that the earlier records do not allow has no effect.

The semantics are those of Apache Kafka 4.3.1 (a test compares them with its cache, step by step), with additions. For
partitions whose segments are cleaned or erased (decisions 14 and 36), a new segment replaces its ancestors, and a copy
that brings no new offset is never read. For all topics, the deletion of an unfinished copy has no effect if the copy is
finished: the record of a former leader that finishes the copy may be committed just before the record of the next
leader that deletes it, and between the two a replica may delete its local segment.

    record                       effect
    segment, copy started        known, not read
    update, copy finished        read in each of its epochs, from the first offset it has there (`EpochSegments`)
    update, delete started       not read any more; kept for the deletion of its objects
      of an unfinished copy      the same; no effect if the copy is finished
    update, delete finished      forgotten
    partition delete             `delete_state`; the segments stay until their own records say otherwise
      finished                   nothing counts as copied: if the topic is tiered again, all segments are copied anew

Memory: 95 to 110 bytes a segment (measured), and some 250 more if it has custom metadata or several epochs
(`bench/micro/remote_segments.py`). A lookup takes a few microseconds, whatever the number.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import filterfalse
from typing import Final

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.epoch_segments import NO_OFFSET, EpochSegments
from moldau.storage.tiered.metadata.leader_history import is_in_history
from moldau.storage.tiered.metadata.lineage import CleanedEndCounts, read_lineage
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_segment import (
    NEXT_PARTITION_DELETE_STATES,
    NEXT_SEGMENT_STATES,
    PARTITION_REMOVAL_STATES,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from moldau.storage.tiered.metadata.replacing import ancestors_of, replaced_segment_with_same_offsets
from moldau.storage.tiered.metadata.segment_table import SegmentTable

OFFSET_MAX: Final = (1 << 63) - 1


class RemoteLog:
    """The remote segments of one partition, by leader epoch, and the lookups in them."""

    __slots__ = (
        "_cleaned_ends",
        "_epochs",
        "_has_lineages",
        "_references",
        "_segments",
        "_size",
        "_spanning",
        "_superseded_ms",
        "delete_state",
    )

    def __init__(self) -> None:
        self._segments = SegmentTable()
        self._epochs: dict[int, EpochSegments] = {}
        self._references = array("H")
        """The number of leader epochs in which each segment is read, by its row in `_segments`."""
        self._size = 0
        self._cleaned_ends = CleanedEndCounts()
        """The cleaned end offsets of the segments that are read."""
        self._has_lineages = False
        """Whether a copy with a lineage was ever finished, so that segments of this partition are cleaned or erased."""
        self._spanning: set[int] = set()
        """The rows of the segments that are read and that have several leader epochs."""
        self.delete_state: PartitionDeleteState | None = None
        """The state of the last removal of the partition; None if it was never removed."""
        self._superseded_ms: dict[int, int] = {}
        """The finished copies that are not read in any epoch, by row: the time (ms) of the record that replaced each of
        them."""

    def __len__(self) -> int:
        """The number of known segments, in any state."""
        return self._segments.count

    # Records

    def replay(self, change: RemoteChange) -> bool:
        """Apply a record. Returns False, without an effect, if the earlier records do not allow it."""
        match change:
            case RemoteSegment():
                return self._replay_segment(change)
            case SegmentUpdate():
                return self._replay_update(change)
            case PartitionDelete():
                return self._replay_delete(change)

    def _replay_segment(self, segment: RemoteSegment) -> bool:
        """Apply a record with a whole segment: a copy that begins, or a segment of a snapshot in any state. Returns
        False if the segment is already known."""
        if self._segments.find(segment.segment_id) is not None:
            return False
        if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
            return True
        row = self._segments.add(segment)
        for epoch, _ in segment.epochs:
            self._epochs.setdefault(epoch, EpochSegments()).note_unreferenced(row)
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._make_visible(row, segment)
        return True

    def _replay_update(self, update: SegmentUpdate) -> bool:
        row = self._segments.find(update.segment_id)
        if row is None or update.state not in NEXT_SEGMENT_STATES[self._segments.state(row)]:
            return False
        if update.state is SegmentState.COPY_SEGMENT_STARTED:
            return False  # The record that starts a copy describes the segment.
        before = self._segments.get(row)
        if update.deletes_unfinished_copy and before.state is SegmentState.COPY_SEGMENT_FINISHED:
            return False
        segment = before.with_update(update)
        if segment.custom_metadata != before.custom_metadata and any(self._references[row : row + 1]):
            self._cleaned_ends.remove(before.custom_metadata)
            self._cleaned_ends.add(segment.custom_metadata)
        self._segments.put(row, segment)
        self._has_lineages |= read_lineage(update.custom_metadata) is not None
        if segment.state is before.state:
            return True
        match segment.state:
            case SegmentState.COPY_SEGMENT_FINISHED:
                self._make_visible(row, segment)
            case SegmentState.DELETE_SEGMENT_STARTED:
                self._superseded_ms.pop(row, None)
                self._unreference(row, segment)
            case SegmentState.DELETE_SEGMENT_FINISHED:
                self._forget(row, segment)
        return True

    def _replay_delete(self, deletion: PartitionDelete) -> bool:
        if deletion.state not in NEXT_PARTITION_DELETE_STATES[self.delete_state]:
            return False
        is_ending = (
            self.delete_state in PARTITION_REMOVAL_STATES
            and deletion.state is PartitionDeleteState.DELETE_PARTITION_FINISHED
        )
        self.delete_state = deletion.state
        for segments in self._epochs.values() if is_ending else ():
            segments.forget_highest()
        return True

    def _make_visible(self, row: int, segment: RemoteSegment) -> None:
        lineage = read_lineage(segment.custom_metadata)
        replaced: list[int] = []
        slots: Sequence[int] = range(len(segment.epochs))
        self._has_lineages |= lineage is not None
        if lineage is not None and lineage.ancestor_count:
            twin = replaced_segment_with_same_offsets(segment, lineage, self._epochs, self._segments)
            ancestors = ancestors_of(segment, lineage, self._epochs, self._segments) if twin is None else twin
            if ancestors is None:
                self._superseded_ms[row] = segment.event_timestamp_ms
                return
            for ancestor_row, ancestor in ancestors.items():
                read_in = self._unreference(ancestor_row, ancestor)
                slots = slots if twin is None else read_in
            replaced = list(ancestors)
        elif self._has_lineages and self._was_copied(segment):
            self._superseded_ms[row] = segment.event_timestamp_ms
            return
        for slot in slots:
            epoch, start_offset = segment.epochs[slot]
            displaced = self._epochs[epoch].reference(
                start_offset, row, segment.last_offset_in(slot), is_transactional=segment.has_transaction_index
            )
            self._note_read(row)
            for other in displaced:
                self._note_not_read(other)
            replaced += displaced
        for other in replaced:
            if other != row and not self._references[other]:
                self._superseded_ms[other] = segment.event_timestamp_ms

    def _was_copied(self, segment: RemoteSegment) -> bool:
        """Whether all offsets of a newly copied segment were copied before, in its last leader epoch.

        Called only for a partition that has had segments with a lineage. A former leader may copy a segment late, and
        that copy must not replace segments that were cleaned or erased since. A late copy of any other partition is
        treated as in Apache Kafka.
        """
        highest_offset = self.highest_offset(segment.epochs[-1].epoch)
        return highest_offset is not None and segment.last_offset <= highest_offset

    def _unreference(self, row: int, segment: RemoteSegment) -> list[int]:
        """Stop reading a segment. Returns the indexes, in `segment.epochs`, of the epochs in which it was read."""
        slots = []
        for slot, (epoch, start_offset) in enumerate(segment.epochs):
            if self._epochs[epoch].unreference(start_offset, row):
                self._note_not_read(row)
                slots.append(slot)
        return slots

    def _note_read(self, row: int) -> None:
        """Count one more epoch in which the segment of a row is read."""
        if row >= len(self._references):
            self._references.extend([0] * (row + 1 - len(self._references)))
        if not self._references[row]:
            self._size += self._segments.size(row)
            self._cleaned_ends.add(self._segments.custom_metadata(row))
            if self._segments.epoch_count(row) > 1:
                self._spanning.add(row)
        self._references[row] += 1

    def _note_not_read(self, row: int) -> None:
        self._references[row] -= 1
        if not self._references[row]:
            self._size -= self._segments.size(row)
            self._cleaned_ends.remove(self._segments.custom_metadata(row))
            self._spanning.discard(row)

    def _forget(self, row: int, segment: RemoteSegment) -> None:
        for epoch, _ in segment.epochs:
            segments = self._epochs[epoch]
            segments.drop_row(row)
        self._segments.remove(row)

    # Lookups

    def find_segment(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The segment from which an offset of a leader epoch is read; None if no segment has the offset."""
        row = self._row_at(epoch, offset)
        return None if row is None else self._segments.get(row)

    def _row_at(self, epoch: int, offset: int) -> int | None:
        segments = self._epochs.get(epoch)
        row = segments.row_at_or_before(offset) if segments is not None else None
        return None if row is None or offset > self._segments.last_offset_in(row, epoch) else row

    def highest_offset(self, epoch: int) -> int | None:
        """The highest offset (inclusive) of a leader epoch that was ever copied; None if no offset of the epoch was
        copied."""
        segments = self._epochs.get(epoch)
        return None if segments is None or segments.highest_offset == NO_OFFSET else segments.highest_offset

    def epoch_starts(self) -> Iterator[EpochStart]:
        """Yield each leader epoch of the segments that are read, with its first offset in them."""
        for epoch, segments in self._epochs.items():
            if segments.first_offset != NO_OFFSET:
                yield EpochStart(epoch, segments.first_offset)

    def next_with_transaction_index(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the first segment with a transaction index in a leader epoch, beginning with the segment that contains
        `offset`. Return None if there is none, or if no segment contains `offset`."""
        row = self._row_at(epoch, offset)
        while row is not None:
            if self._segments.has_transaction_index(row):
                return self._segments.get(row)
            if not self._epochs[epoch].has_transactional_from(offset):
                return None
            offset = self._segments.offsets(row)[1] + 1
            row = self._row_at(epoch, offset)
        return None

    def first_from_time(self, epoch: int, timestamp: int, offset: int) -> RemoteSegment | None:
        """Return the first segment of a leader epoch that may have a record at or after `timestamp` (ms), beginning
        with the segment that contains `offset`. Return None if there is none."""
        segments = self._epochs.get(epoch)
        if segments is None:
            return None
        table = self._segments
        row = segments.first_from_time(timestamp, offset, table.latest_timestamp, lambda row: table.offsets(row)[1])
        return None if row is None else self._segments.get(row)

    def state_of(self, segment_id: bytes) -> SegmentState | None:
        """The state of a segment; None if the segment is not known, or its deletion is finished."""
        row = self._segments.find(segment_id)
        return None if row is None else self._segments.state(row)

    def segments(self) -> Iterator[RemoteSegment]:
        """All known segments, in any state and in no particular order. `replay` must not be called during the
        iteration."""
        return map(self._segments.get, self._segments.rows())

    def read_segments(self) -> list[RemoteSegment]:
        """The segments that are read in at least one leader epoch (see `EpochSegments`), each once, by start offset."""
        rows = {row for epoch in self._epochs.values() for row in epoch.referenced_rows()}
        return sorted(map(self._segments.get, rows), key=lambda each: (each.start_offset, each.segment_id))

    def segments_from(self, epoch: int, offset: int, count_max: int) -> list[RemoteSegment]:
        """The first `count_max` of the segments that are read in a leader epoch and may have an offset at or past
        `offset`."""
        segments = self._epochs.get(epoch)
        rows = segments.referenced_rows(offset)[:count_max] if segments is not None else []
        return list(map(self._segments.get, rows))

    def oldest_first(self) -> Iterator[RemoteSegment]:
        """Yield the segments of `read_segments` one by one, so that the caller may stop early without a cost for the
        others. `replay` must not be called during the iteration."""
        key, spanning = self._segments.start_key, self._spanning
        rows = merge(
            *(filterfalse(spanning.__contains__, epoch.referenced_rows()) for epoch in self._epochs.values()),
            sorted(spanning, key=key),
            key=key,
        )
        return map(self._segments.get, rows)

    def segments_outside_history(
        self, log_end_offset: int, entries: Sequence[EpochStart], *, is_compacted: bool = False
    ) -> list[RemoteSegment]:
        """The segments that are read but do not belong to the history of a log with these leader epochs and this end
        offset (`is_in_history`), by start offset. Only epochs with offsets outside of that history are examined."""
        slots = {each.epoch: slot for slot, each in enumerate(entries)}
        suspects = set(self._spanning)  # A segment may be read in only some of its epochs.
        for epoch, segments in self._epochs.items():
            slot = slots.get(epoch)
            if slot is None:
                suspects.update(segments.referenced_rows())
                continue
            start_offset = entries[slot].start_offset if slot else 0
            end_offset = entries[slot + 1].start_offset if slot + 1 < len(entries) else log_end_offset
            suspects.update(segments.rows_outside(start_offset, end_offset))
        found = sorted(suspects, key=self._segments.start_key)
        return [
            each
            for each in map(self._segments.get, found)
            if not is_in_history(each, log_end_offset, entries, is_compacted=is_compacted)
        ]

    def superseded_copies(self) -> list[tuple[RemoteSegment, int]]:
        """The finished copies that no epoch reads, each with the time (ms) of the record that replaced it. The caller
        deletes them after a grace period for readers.
        """
        return [(self._segments.get(row), since_ms) for row, since_ms in self._superseded_ms.items()]

    def unfinished_copies(self) -> list[RemoteSegment]:
        """The copies that were started and not finished, by time. Those of a former leader, or from before this
        leader's start, must be deleted.
        """
        rows = {row for epoch in self._epochs.values() for row in epoch.unreferenced}
        started = [row for row in rows if self._segments.state(row) is SegmentState.COPY_SEGMENT_STARTED]
        return sorted(map(self._segments.get, started), key=lambda each: (each.event_timestamp_ms, each.segment_id))

    def segments_in_deletion(self) -> list[RemoteSegment]:
        """The segments whose deletion was begun and not finished, by start offset."""
        rows = {row for epoch in self._epochs.values() for row in epoch.unreferenced}
        begun = [row for row in rows if self._segments.state(row) is SegmentState.DELETE_SEGMENT_STARTED]
        return sorted(map(self._segments.get, begun), key=lambda each: (each.start_offset, each.segment_id))

    def size(self) -> int:
        """The size (bytes) of the .log objects of the segments that are read. A segment of several
        epochs counts once."""
        return self._size

    def cleaned_end_offset(self) -> int:
        """The offset (exclusive) up to which every remote segment of a compacted topic is cleaned; no tombstone at or
        past it may get its delete horizon. 0 if a segment was never cleaned, `OFFSET_MAX` if there are no remote
        segments."""
        return self._cleaned_ends.lowest_cleaned_end(OFFSET_MAX)

    def memory_size(self) -> int:
        """The memory in bytes, without the values of the dictionaries."""
        epochs = sum(epoch.memory_size() for epoch in self._epochs.values())
        epochs += self._references.__sizeof__() + self._cleaned_ends.memory_size()
        return self._segments.memory_size() + epochs + self._epochs.__sizeof__() + self._superseded_ms.__sizeof__()
