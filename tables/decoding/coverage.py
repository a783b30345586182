"""Checks that the batches of a slice have the offsets that the plan of the read expects.

    a dense log          Every batch begins where the one before it ended. The first batch has the first offset of the
                         slice, and the last batch its last offset. If the next slice continues in the segment, the
                         header of its first batch is read.
    a log with gaps      Every batch begins past the end of the one before it. At the end of the segment, the last
                         entries of its offset and time index name no batch past the end of the file.
    both                 No batch has offsets outside of its segment.

A log is dense if no cleaner has removed batches. A cleaner may have run before the topic's policy was changed. A batch
with fewer records than offsets shows this, and then a gap is not a sign of damage.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, MAGIC, parse_header
from moldau.tables.origins.local_segments import damage_at_end
from moldau.tables.origins.port import SegmentFile, Slice
from moldau.tables.refusals import DataLost, SegmentReplaced

NO_OFFSET: Final = -1


class OffsetCoverage:
    """Checks that the batches of a slice have the offsets that the plan expects. It raises only in `check_complete`,
    after all existing batches were read.
    """

    __slots__ = ("_gap", "_is_cleaned", "_next_offset", "_stray", "_wanted")

    def __init__(self, wanted: Slice) -> None:
        self._wanted = wanted
        self._next_offset = wanted.start_offset if wanted.is_dense and wanted.has_start else NO_OFFSET
        """The offset at or before which the next batch has to begin; `NO_OFFSET` if it may begin at any offset."""
        self._gap: tuple[int, int] | None = None
        """The first range of offsets that is missing: [start, end)."""
        self._stray: int | None = None
        """The base offset of the first batch that does not belong into the slice, or does not follow the batch before
        it."""
        self._is_cleaned = False

    def add_batch(self, base_offset: int, last_offset: int, records_count: int) -> None:
        """Compare the next batch of the slice with the plan."""
        expected, wanted = self._next_offset, self._wanted
        if base_offset > expected != NO_OFFSET and self._gap is None:
            gap = max(expected, wanted.start_offset), min(base_offset, wanted.end_offset)
            self._gap = gap if gap[0] < gap[1] else None
        segment = wanted.segment
        is_inside = segment.batches_start <= base_offset <= last_offset < segment.batches_end
        is_after = expected <= max(base_offset, wanted.start_offset)
        if not (is_inside and is_after) and self._stray is None:
            self._stray = base_offset
        if records_count <= last_offset - base_offset:
            self._is_cleaned = True
        self._next_offset = last_offset + 1

    def check_complete(self, file: SegmentFile) -> None:
        """Raise `SegmentReplaced` if a batch had offsets outside of the slice, and `DataLost` if offsets were missing.
        Called after the last batch.
        """
        wanted = self._wanted
        if self._stray is not None:
            raise SegmentReplaced(
                f"{wanted}: {wanted.path} has a batch of offset {self._stray}, which does not belong there"
            )
        if not wanted.is_dense or self._is_cleaned:
            damage = self._damage_at_end()
            if damage is not None:
                raise DataLost(f"{wanted}: {damage}")
            return
        gap = self._gap or self._gap_at_end(file)
        if gap is not None:
            raise DataLost(
                f"{wanted.topic}-{wanted.partition}: offsets {gap[0]} to {gap[1]} are missing in {wanted.path}"
            )

    def _damage_at_end(self) -> str | None:
        wanted = self._wanted
        reaches_end = wanted.end_position == wanted.segment.size
        return damage_at_end(wanted.segment, self._next_offset - 1) if reaches_end else None

    def _gap_at_end(self, file: SegmentFile) -> tuple[int, int] | None:
        wanted = self._wanted
        reached = wanted.start_offset if self._next_offset == NO_OFFSET else self._next_offset
        if wanted.has_end:
            return (reached, wanted.end_offset) if reached < wanted.end_offset else None
        if wanted.last_offset is not None:  # The plan has compared it.
            return None
        header = file.pread(HEADER_SIZE, wanted.end_position)
        if len(header) < HEADER_SIZE:
            return None
        try:
            behind = parse_header(header, 0, True)
        except MalformedMessage as malformed:
            raise MalformedMessage(f"position {wanted.end_position}: {malformed}") from None
        if behind.magic != MAGIC and behind.is_compressed:
            return None  # Only its contents tell the first offset of the messages in it.
        return (reached, behind.base_offset) if behind.base_offset > reached else None
