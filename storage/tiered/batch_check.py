"""The check of a whole segment, piece by piece from its first byte on: every batch is whole, has a right checksum, and
has offsets of the segment, after those of the batch before. The offset and the time index are made on the way.

It walks with the compiled loop of recovery (`storage/segment/batch_run.py`). A leader checks a segment before it copies
it; the indexes of a remote segment are made again with it. The base offset and the leader epoch of a batch are not
covered by its checksum: of these only the order of the offsets is checked.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.checksum import crc32c
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from moldau.storage.log.verified_batch import DamagedBatch
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.batch_run import BatchRun
from moldau.storage.segment.offset_index import ENTRY as OFFSET_ENTRY
from moldau.storage.segment.time_index import ENTRY as TIME_ENTRY
from moldau.storage.segment.time_index import NO_TIMESTAMP

PIECE_SIZE: Final = 1 << 18
"""A good size (bytes) of a piece: the compiled loop keeps other threads waiting for as long as one piece takes."""


class BatchCheck:
    """The check of one segment. It blocks for CPU time, and does no I/O."""

    __slots__ = (
        "_base_offset",
        "_end_offset",
        "_last_time",
        "_offset_entries",
        "_parts",
        "_parts_size",
        "_run",
        "_size",
        "_time_entries",
        "_wanted_size",
        "crc",
        "position",
        "read_size",
    )

    def __init__(
        self, base_offset: int, end_offset: int, size: int, index_interval_bytes: int, index_size_max: int
    ) -> None:
        """`end_offset`: where the segment ends (exclusive). `size`: its bytes. The indexes have an entry for about
        every `index_interval_bytes`, and never more than `index_size_max` bytes each."""
        self._base_offset = base_offset
        self._end_offset = end_offset
        self._size = size
        self._run = BatchRun(base_offset, -1, end_offset, INT64_MAX, 0)
        self._run.index_interval_bytes = max(index_interval_bytes, size // max(1, index_size_max // TIME_ENTRY.size))
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._last_time = NO_TIMESTAMP
        self._parts: list[BytesLike] = []
        """Pieces with a batch that is not whole yet; the first of them begins at `position`."""
        self._parts_size = 0
        self._wanted_size = HEADER_SIZE
        self.position = 0
        """The position after the last batch that was checked."""
        self.read_size = 0
        """Bytes of all pieces so far: where the next piece begins."""
        self.crc = 0
        """CRC-32C of all bytes so far."""

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that was checked."""
        return self._run.next_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp (ms) so far; -1 where no record has one."""
        return self._run.max_timestamp

    @property
    def offset_index(self) -> bytes:
        """The offset index of the batches so far."""
        return bytes(self._offset_entries)

    @property
    def time_index(self) -> bytes:
        """The time index of the batches so far. Like a sealed segment's it ends with the largest timestamp."""
        run = self._run
        if run.max_timestamp <= self._last_time:
            return bytes(self._time_entries)
        last = TIME_ENTRY.pack(run.max_timestamp, run.offset_of_max_timestamp - self._base_offset)
        return bytes(self._time_entries) + last

    def take(self, piece: BytesLike) -> None:
        """Check the batches that are whole with the next piece. Raises `DamagedBatch`."""
        self.crc = crc32c(piece, self.crc)
        self.read_size += len(piece)
        self._parts.append(piece)
        self._parts_size += len(piece)
        if self._parts_size < self._wanted_size:
            return
        data = b"".join(self._parts)
        start_position, inside = self.position, 0
        self._wanted_size = HEADER_SIZE
        while inside + HEADER_SIZE <= len(data):
            end = self._run.take(data, inside, start_position)
            if end == inside:
                size = self._examine(data, inside)
                if inside + size > len(data):
                    self._wanted_size = size
                    break
                end = self._run.take(data, inside, start_position)
                if end == inside:
                    raise DamagedBatch(self.position, self._disorder(parse_header(data, inside)))
            if self._run.next_offset > self._end_offset:
                past = f"offset {self._run.next_offset - 1} in a segment that ends before {self._end_offset}, after it"
                raise DamagedBatch(self.position, past)
            inside, self.position = end, start_position + end
            self._note_entries()
        self._parts = [memoryview(data)[inside:]] if inside < len(data) else []
        self._parts_size = len(data) - inside

    def finish(self) -> None:
        """Check that the last piece ended with a whole batch, at the size of the segment. Raises `DamagedBatch`."""
        if self.position != self._size or self._parts_size:
            raise DamagedBatch(self.position, f"no whole batch in the last {self._size - self.position} bytes,")

    def _examine(self, data: bytes, inside: int) -> int:
        """The size of a batch at which the walk stopped, because it is damaged, not whole in `data`, or of another
        leader epoch than the one before. Raises `DamagedBatch`."""
        try:
            header = parse_header(data, inside)
        except MalformedMessage as malformed:
            raise DamagedBatch(self.position, str(malformed)) from None
        if self.position + header.size > self._size:
            raise DamagedBatch(self.position, f"{self._size - self.position} bytes of a batch of {header.size}")
        if inside + header.size <= len(data) and not crc_is_valid(data, inside, header):
            raise DamagedBatch(self.position, "checksum mismatch")
        self._run.leader_epoch = header.partition_leader_epoch
        return header.size

    def _disorder(self, header: BatchHeader) -> str:
        return f"offsets {header.base_offset} to {header.last_offset} after offset {self._run.next_offset - 1}"

    def _note_entries(self) -> None:
        for last_offset, position, max_timestamp, offset_of_max_timestamp in self._run.index_entries:
            self._offset_entries += OFFSET_ENTRY.pack(last_offset - self._base_offset, position)
            if max_timestamp > self._last_time:
                self._last_time = max_timestamp
                self._time_entries += TIME_ENTRY.pack(max_timestamp, offset_of_max_timestamp - self._base_offset)
        self._run.clear()
