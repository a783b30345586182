"""Two passes over all batches of a segment, piece by piece from its first byte on. `SegmentBatchCheck` checks the
batches, and builds the offset index and the time index. `TransactionIndexBuilder` rebuilds the transaction index. Both
raise `DamagedBatch` if a batch is not complete or has a wrong checksum.

`SegmentBatchCheck` uses the compiled loop of recovery (`storage/segment/batch_run.py`), and compares the offsets with
those of the segment and of the batch before. A leader runs it before it copies a segment; it also rebuilds the indexes
of a remote segment. The base offset and the leader epoch of a batch are not covered by its checksum: of these only the
order of the offsets is checked. `offset_index_problem` and `time_index_problem` check an index file by its entries
alone, without the batches.

A transaction that ends in the segment may have begun before it. So `TransactionIndexBuilder` begins with the producer
snapshot of the segment before, which has the transactions that are open at its end. The first segment of a log needs no
snapshot. `TransactionIndexBuilder` is not used for the segments of a compacted topic: cleaning removes markers, and
without them a transaction would seem to begin earlier than it did.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import le, lt
from sys import byteorder
from typing import Final

from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import CONTROL_BIT, HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from moldau.storage.log_config import INT64_MAX
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.producers.producer_state import ProducerStates, read_transaction_marker
from moldau.storage.segment.batch_run import BatchRun
from moldau.storage.segment.batch_scan import DamagedBatch
from moldau.storage.segment.sparse_index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from moldau.storage.segment.transaction_index import ENTRY, VERSION
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, RemoteStorage
from moldau.storage.tiered.segment_copy import get_checked_object, get_manifest

PIECE_SIZE: Final = 1 << 18
"""A good size (bytes) of a piece: the compiled loop blocks other threads for as long as it takes for one piece."""


class SegmentPieces:
    """The pieces of a .log file of `size` bytes, in order. Pieces are joined if a batch begins in one of them and ends
    in a later one."""

    __slots__ = ("_parts", "_parts_size", "_wanted_size", "position", "read_size", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[BytesLike] = []
        """Pieces with the beginning of a batch that is not complete yet; the first of them begins at `position`."""
        self._parts_size = 0
        self._wanted_size = HEADER_SIZE
        self.position = 0
        """The position (bytes) after the last batch that was processed."""
        self.read_size = 0
        """The bytes of all pieces so far, which is the position of the next piece."""

    def join_piece(self, piece: BytesLike) -> bytes:
        """Add the next piece, and return all bytes from `position` on; empty if they are too few for a batch."""
        self.read_size += len(piece)
        self._parts.append(piece)
        self._parts_size += len(piece)
        if self._parts_size < self._wanted_size:
            return b""
        self._wanted_size = HEADER_SIZE
        return b"".join(self._parts)

    def batch_at(self, data: bytes, inside: int) -> BatchHeader | None:
        """Return the header of the batch at `position` of the file, which begins at `data[inside]`. Return None if the
        batch is not complete yet.

        Raises `DamagedBatch`, also if the checksum of the batch is wrong.
        """
        if inside + HEADER_SIZE > len(data):
            return None
        try:
            header = parse_header(data, inside)
        except MalformedMessage as malformed:
            raise DamagedBatch(self.position, str(malformed)) from None
        if self.position + header.size > self.size:
            raise DamagedBatch(self.position, f"{self.size - self.position} bytes of a batch of {header.size}")
        if inside + header.size > len(data):
            self._wanted_size = header.size
            return None
        if not crc_is_valid(data, inside, header):
            raise DamagedBatch(self.position, "checksum mismatch")
        return header

    def keep_rest(self, data: bytes, inside: int) -> None:
        """Keep the bytes from `data[inside]` on for the next piece. They begin at `position` of the file."""
        self._parts = [memoryview(data)[inside:]] if inside < len(data) else []
        self._parts_size = len(data) - inside

    def check_complete(self) -> None:
        """Check that the pieces contained the whole segment and ended at the end of a batch. Raises `DamagedBatch`."""
        if self.position != self.size or self._parts_size:
            raise DamagedBatch(self.position, f"no whole batch in the last {self.size - self.position} bytes,")


class SegmentBatchCheck:
    """Checks the batches of one segment, and builds its offset index and time index. Uses CPU only, no I/O."""

    __slots__ = (
        "_base_offset",
        "_end_offset",
        "_last_time",
        "_offset_entries",
        "_pieces",
        "_run",
        "_time_entries",
        "crc",
    )

    def __init__(
        self, base_offset: int, end_offset: int, size: int, index_interval_bytes: int, index_size_max: int
    ) -> None:
        """`end_offset`: the end of the segment (exclusive). `size`: its bytes. The indexes get an entry for about every
        `index_interval_bytes`, and never more than `index_size_max` bytes each."""
        self._base_offset = base_offset
        self._end_offset = end_offset
        self._pieces = SegmentPieces(size)
        self._run = BatchRun(base_offset, -1, end_offset, INT64_MAX, 0)
        self._run.index_interval_bytes = max(index_interval_bytes, size // max(1, index_size_max // TIME_ENTRY.size))
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._last_time = NO_TIMESTAMP
        self.crc = 0
        """The CRC-32C of all bytes so far."""

    @property
    def position(self) -> int:
        """The position after the last batch that was checked."""
        return self._pieces.position

    @property
    def read_size(self) -> int:
        """The bytes of all pieces so far, which is the position of the next piece."""
        return self._pieces.read_size

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that was checked."""
        return self._run.next_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp (ms) so far; -1 if no record has one."""
        return self._run.max_timestamp

    @property
    def offset_index(self) -> bytes:
        """The content of the offset index for the batches so far."""
        return bytes(self._offset_entries)

    @property
    def time_index(self) -> bytes:
        """The content of the time index for the batches so far. As in a sealed segment, its last entry has the largest
        timestamp."""
        run = self._run
        if run.max_timestamp <= self._last_time:
            return bytes(self._time_entries)
        last = TIME_ENTRY.pack(run.max_timestamp, run.offset_of_max_timestamp - self._base_offset)
        return bytes(self._time_entries) + last

    def add_piece(self, piece: BytesLike) -> None:
        """Add the next piece, and check the batches that are complete now. Raises `DamagedBatch`."""
        self.crc = crc32c(piece, self.crc)
        pieces = self._pieces
        start_position, inside = pieces.position, 0
        data = pieces.join_piece(piece)
        while inside + HEADER_SIZE <= len(data):
            end = self._run.check_batches(data, inside, start_position)
            if end == inside:
                # The batch is damaged, not whole in `data`, or of another leader epoch than the one before.
                header = pieces.batch_at(data, inside)
                if header is None:
                    break
                self._run.leader_epoch = header.partition_leader_epoch
                end = self._run.check_batches(data, inside, start_position)
                if end == inside:
                    raise DamagedBatch(pieces.position, self._disorder(header))
            if self._run.next_offset > self._end_offset:
                past = f"offset {self._run.next_offset - 1} in a segment that ends before {self._end_offset}, after it"
                raise DamagedBatch(pieces.position, past)
            inside, pieces.position = end, start_position + end
            self._note_entries()
        if data:
            pieces.keep_rest(data, inside)

    def check_complete(self) -> None:
        """Check that the pieces contained the whole segment and ended at the end of a batch. Raises `DamagedBatch`."""
        self._pieces.check_complete()

    def _disorder(self, header: BatchHeader) -> str:
        return f"offsets {header.base_offset} to {header.last_offset} after offset {self._run.next_offset - 1}"

    def _note_entries(self) -> None:
        for last_offset, position, max_timestamp, offset_of_max_timestamp in self._run.index_entries:
            self._offset_entries += OFFSET_ENTRY.pack(last_offset - self._base_offset, position)
            if max_timestamp > self._last_time:
                self._last_time = max_timestamp
                self._time_entries += TIME_ENTRY.pack(max_timestamp, offset_of_max_timestamp - self._base_offset)
        self._run.clear()


class TransactionIndexBuilder:
    """Builds the transaction index of a segment from its batches, piece by piece. Uses CPU only, no I/O."""

    def __init__(self, start_offset: int, size: int, snapshot: BytesLike | None) -> None:
        """`size`: the bytes of the segment. `snapshot`: the content of the producer snapshot at `start_offset`; None at
        the start of a log. Raises `CorruptSnapshot`."""
        self._producers = ProducerStates()
        # At time 0 no producer has expired: an open transaction counts however old it is.
        self._producers.restore([] if snapshot is None else decode_snapshot(snapshot), start_offset, 0)
        self._pieces = SegmentPieces(size)
        self._entries = bytearray()

    @property
    def index(self) -> bytes:
        """The content of the transaction index for the batches so far."""
        return bytes(self._entries)

    def add_piece(self, piece: BytesLike) -> None:
        """Add the next piece, and note the transactions of the batches that are complete now. Raises `DamagedBatch`."""
        pieces, inside = self._pieces, 0
        data = pieces.join_piece(piece)
        while data and (header := pieces.batch_at(data, inside)) is not None:
            batch = data[inside : inside + header.size] if header.attributes & CONTROL_BIT else b""
            try:
                marker = read_transaction_marker(batch) if batch else None
            except MalformedMessage as malformed:
                raise DamagedBatch(pieces.position, str(malformed)) from None
            completed = self._producers.replay(header, marker)
            if completed is not None and completed.is_aborted:
                self._entries += ENTRY.pack(VERSION, *self._producers.transaction_index_entry(completed))
            self._producers.on_high_watermark(self._producers.map_end_offset)
            inside, pieces.position = inside + header.size, pieces.position + header.size
        if data:
            pieces.keep_rest(data, inside)

    def check_complete(self) -> None:
        """Check that the pieces contained the whole segment and ended at the end of a batch. Raises `DamagedBatch`."""
        self._pieces.check_complete()


async def transaction_index_builder_of(
    storage: RemoteStorage,
    cluster_id: str,
    partition: RemotePartition,
    segment: RemoteSegment,
    remote_log: RemoteLog | None,
) -> TransactionIndexBuilder:
    """Return the builder for the transaction index of a segment, which knows the transactions that are open at the
    start of the segment.

    Raises `RemoteStorageError`, and its subclass `CorruptObject` if these transactions cannot be known.
    """
    earlier = [] if remote_log is None else list(_earlier(remote_log, segment))
    adjacent = [each for each in earlier if each.last_offset + 1 == segment.start_offset]
    if remote_log is None or segment.custom_metadata is not None or (earlier and len(adjacent) != 1):
        key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.TRANSACTION_INDEX)
        raise CorruptObject(f"{key} is damaged, and the transactions that are open before it are not known")
    if not earlier:
        return TransactionIndexBuilder(segment.start_offset, segment.size, None)
    before = adjacent[0]
    manifest = await get_manifest(storage, cluster_id, partition, before)
    data = await get_checked_object(storage, partition, before, manifest, ObjectKind.PRODUCER_SNAPSHOT)
    try:
        return TransactionIndexBuilder(segment.start_offset, segment.size, data)
    except CorruptSnapshot as error:
        key = object_key(partition, before.start_offset, before.segment_id, ObjectKind.PRODUCER_SNAPSHOT)
        raise CorruptObject(f"{key}: {error}") from None


def _earlier(remote_log: RemoteLog, segment: RemoteSegment) -> Iterator[RemoteSegment]:
    """Yield the segments that `remote_log` reads and that begin before `segment`, in the order of their offsets."""
    for each in remote_log.read_segments():
        if each.start_offset < segment.start_offset:
            yield each


def offset_index_problem(data: bytes, last_offset_delta: int, size: int) -> str | None:
    """Return what is wrong with the offset index of a segment of `size` bytes; None if nothing is.

    `last_offset_delta`: the last offset of the segment, relative to its base offset. Offsets must increase and
    positions must not decrease; the first batch never has an entry. Whether a batch begins at each position is not
    checked.
    """
    if len(data) % OFFSET_ENTRY.size:
        return f"{len(data)} bytes are not whole entries"
    columns = array("i", data)
    if byteorder == "little":
        columns.byteswap()
    offsets, positions = columns[0::2], columns[1::2]
    if not offsets:
        return None
    if offsets[0] < 0 or positions[0] < 1 or offsets[-1] > last_offset_delta or positions[-1] >= size:
        return "an entry is outside of the segment"
    is_in_order = all(map(lt, offsets, offsets[1:])) and all(map(le, positions, positions[1:]))
    return None if is_in_order else "the entries are out of order"


def time_index_problem(data: bytes, last_offset_delta: int) -> str | None:
    """Return what is wrong with a time index; None if nothing is. Timestamps must increase, and offsets must not
    decrease. `last_offset_delta`: the last offset of the segment, relative to its base offset."""
    if len(data) % TIME_ENTRY.size:
        return f"{len(data)} bytes are not whole entries"
    timestamps = [timestamp for timestamp, _ in TIME_ENTRY.iter_unpack(data)]
    offsets = [offset for _, offset in TIME_ENTRY.iter_unpack(data)]
    if not offsets:
        return None
    if timestamps[0] < 0 or offsets[0] < 0 or offsets[-1] > last_offset_delta:
        return "an entry is outside of the segment"
    is_in_order = all(map(lt, timestamps, timestamps[1:])) and all(map(le, offsets, offsets[1:]))
    return None if is_in_order else "the entries are out of order"
