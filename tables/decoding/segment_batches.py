"""The batches of a slice, checked and decompressed, gathered into chunks.

Records that are not compressed stay in the bytes that were read: a chunk refers to them.

A read of committed records leaves out the batches of aborted transactions, which the transaction indexes name. If a
segment has no such index, either no transaction was aborted, or the index was lost. So for a transactional batch that
no index names, a task that reads files searches for the marker of the transaction. It reads the headers from that batch
on, also in the following segments, and remembers each marker that it passes. Each header is read at most twice, and
only in topics with transactions.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    MAGIC,
    OLD_MESSAGE_SIZE_MIN,
    BatchHeader,
    crc_is_valid,
    may_be_old_message,
    parse_header,
    whole_batch,
)
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.segment.batch_scan import iterate_batch_headers
from moldau.storage.segment.segment_listing import list_segments
from moldau.tables.decoding.coverage import OffsetCoverage
from moldau.tables.decoding.expansion import Expander
from moldau.tables.origins.open_transactions import is_abort
from moldau.tables.origins.port import BatchSource, FileInPieces, FoundBatch, SegmentFile, Slice, upgrade_old_message
from moldau.tables.refusals import DataLost, SegmentReplaced

READ_SIZE = 4 << 20
"""The number of bytes that are read from a file at once. A batch that is larger is read as a whole."""
CHUNK_SIZE = 2 << 20
"""The size (decompressed bytes) from which on a chunk gets no further batch. The columns of a chunk of this size stay
in the processor's caches while the compiled decoder writes them."""


class BatchBody(NamedTuple):
    """The decompressed records of a batch in a chunk: `buffers[buffer][start:end]`."""

    header: BatchHeader
    buffer: int
    start: int
    end: int


class Chunk:
    """Consecutive batches that are decoded together, with the buffers of their records. The buffers are valid until the
    next chunk.
    """

    __slots__ = ("bodies", "buffers", "size")

    def __init__(self) -> None:
        self.bodies: list[BatchBody] = []
        self.buffers: list[BytesLike] = []
        self.size = 0
        """The bytes of all records of the chunk."""

    def add(self, header: BatchHeader, data: BytesLike, start: int, end: int) -> None:
        if not self.buffers or self.buffers[-1] is not data:
            self.buffers.append(data)
        self.bodies.append(BatchBody(header, len(self.buffers) - 1, start, end))
        self.size += end - start

    def reversed_chunk(self) -> Chunk:
        """Return a chunk with the same batches in reverse order."""
        turned = Chunk()
        turned.bodies, turned.buffers, turned.size = self.bodies[::-1], self.buffers, self.size
        return turned

    @property
    def headers(self) -> list[BatchHeader]:
        return [each.header for each in self.bodies]


class AbortedBatches:
    """Recognizes the batches of the aborted transactions that the plan of a slice names."""

    def __init__(self, wanted: Slice) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for each in wanted.aborted:
            self._ranges.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to one of these aborted transactions: it is transactional, has the producer id, and
        lies between the first offset and the marker.
        """
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.is_transactional:
            return False
        return any(first <= header.base_offset <= last for first, last in ranges)


def chunks_of(wanted: Slice, times_ms_min: int | None = None, *, chunk_size: int | None = None) -> Iterator[Chunk]:
    """Yield the records of a slice in chunks. Batches whose records are all before `times_ms_min` are left out. The
    next chunk reuses the buffers of a chunk. Raises what `batches_with_records` and `expand_batch` raise."""
    chunk = Chunk()
    limit = chunk_size or CHUNK_SIZE
    expander = Expander(limit)
    lost: DataLost | None = None
    try:
        for found in batches_with_records(wanted):
            header = found[1]
            if times_ms_min is not None and header.max_timestamp < times_ms_min:
                continue
            chunk.add(header, *expand_batch(wanted, found, expander))
            if chunk.size >= limit:
                yield chunk
                chunk = Chunk()
                expander.reuse()
    except DataLost as missing:  # It is raised after the last batch: with failOnDataLoss=false all of them are read.
        lost = missing
    if chunk.bodies:
        yield chunk
    if lost is not None:
        raise lost


def batches_with_records(wanted: Slice) -> Iterator[FoundBatch]:
    """Yield the stored batches of a slice that have records. Control batches and empty batches are left out. Batches of
    aborted transactions are left out if the slice reads only committed records. Raises what `batches_of` raises."""
    aborted = AbortedBatches(wanted) if wanted.aborted else None
    markers = AbortMarkers(wanted) if wanted.finds_markers else None
    for found in batches_of(wanted):
        header = found[1]
        if header.is_control or header.last_offset < wanted.start_offset or header.base_offset >= wanted.end_offset:
            continue
        if not header.records_count and header.size == HEADER_SIZE:  # Compaction has removed all of its records.
            continue
        if aborted is not None and aborted.is_aborted(header):
            continue
        if markers is None or not header.is_transactional or not markers.ends_in_abort(found[0], header):
            yield found


def expand_batch(wanted: Slice, found: FoundBatch, expander: Expander) -> tuple[BytesLike, int, int]:
    """Check and decompress the records of a batch. Returns a buffer, a start and an end: the records are
    buffer[start:end]. Raises `MalformedMessage`, which names the file and the position, also if the checksum of the
    batch does not match."""
    position, header, piece, inside = found
    try:
        check_checksum(piece, inside, header)
        if not header.is_compressed:
            return piece, inside + HEADER_SIZE, inside + header.size
        return expander.expand(header.codec, memoryview(piece)[inside + HEADER_SIZE : inside + header.size])
    except MalformedMessage as malformed:
        raise MalformedMessage(f"{wanted}: {wanted.path}, position {position}: {malformed}") from None


def check_checksum(piece: BytesLike, position: int, header: BatchHeader) -> None:
    if not crc_is_valid(piece, position, header):
        raise MalformedMessage("the checksum of the batch does not match")


def batches_of(wanted: Slice) -> Iterator[FoundBatch]:
    """Yield the whole batches of a slice. Each is a tuple: the position in the file, the header, the bytes that were
    read, and the position of the batch in these bytes.

    Raises `MalformedMessage`, `DataLost` and OSError. After the last batch it raises `SegmentReplaced` if that batch
    does not end where it did when the read was planned, and `DataLost` if offsets of the slice are missing.
    """
    if isinstance(wanted.source, BatchSource):
        yield from wanted.source.batches(wanted)
        return
    file = wanted.source.open(wanted)
    last_offset, end_position = None, wanted.start_position
    coverage = OffsetCoverage(wanted)
    try:
        for found in stored_batches(file, wanted):
            header = found[1]
            last_offset, end_position = header.base_offset + header.last_offset_delta, found[0] + header.size
            if header.magic != MAGIC:
                found = upgrade_old_message(found)
                header = found[1]
            coverage.add_batch(header.base_offset, last_offset, header.records_count)
            yield found
        is_other = wanted.last_offset is not None and last_offset != wanted.last_offset
        if end_position != wanted.end_position or is_other:
            raise SegmentReplaced(
                f"{wanted}: {wanted.path} does not have the batches that it had when the read was planned"
            )
        coverage.check_complete(file)
    except MalformedMessage as malformed:
        raise MalformedMessage(f"{wanted}: {wanted.path}: {malformed}") from None
    finally:
        file.close()


def stored_batches(file: SegmentFile, wanted: Slice) -> Iterator[FoundBatch]:
    """Yield the whole batches between the positions of a slice. The last of them may end before the slice does. Raises
    `MalformedMessage`, and what `SegmentFile.pread` raises."""
    position = wanted.start_position
    while position + OLD_MESSAGE_SIZE_MIN <= wanted.end_position:
        piece = read_piece(file, position, wanted)
        inside = 0
        while (header := whole_batch(piece, inside, len(piece))) is not None:
            yield position + inside, header, piece, inside
            inside += header.size
        if not inside:
            return
        position += inside


def read_piece(file: SegmentFile, position: int, wanted: Slice) -> BytesLike:
    """Read bytes of a segment's file from `position`, the beginning of a batch. The result has at least this whole
    batch, unless the batch ends after the slice.

    A local file is read `READ_SIZE` bytes at a time. For a `FileInPieces`, the result is the rest of the buffer that
    contains `position`, without a copy. If the batch continues in the next buffer, the result is only this batch.
    """
    left = wanted.end_position - position
    rest = file.rest_of_piece(position) if isinstance(file, FileInPieces) else READ_SIZE
    piece = file.pread(min(max(rest, HEADER_SIZE), left), position)
    if len(piece) < HEADER_SIZE and not may_be_old_message(piece, 0):
        return piece
    size = parse_header(piece, 0, True).size
    if len(piece) < size <= left:
        piece = file.pread(size, position)
    return piece


class AbortMarkers:
    """The transaction markers in the files of a partition, found by reading forward from the first batch that is looked
    up. The files are read only as far as lookups need."""

    def __init__(self, wanted: Slice) -> None:
        self._wanted = wanted
        self._markers: dict[int, tuple[list[int], list[bool]]] = {}
        """For each producer id, the offsets of its markers, and whether each marker aborts its transaction."""
        self._walk: Iterator[None] | None = None

    def ends_in_abort(self, position: int, header: BatchHeader) -> bool:
        """Whether the transaction of a batch, which begins at `position` of the slice's file, was aborted. Batches must
        be looked up in the order of their offsets. Raises `DataLost`, `MalformedMessage` and OSError."""
        if self._walk is None:
            self._walk = self._walked(position)
        while True:
            offsets, aborts = self._markers.get(header.producer_id, ((), ()))
            slot = bisect_right(offsets, header.base_offset)
            if slot < len(offsets):
                return aborts[slot]
            if next(self._walk, self) is self:  # No marker: the transaction is not aborted below the high watermark.
                return False

    def _walked(self, position: int) -> Iterator[None]:
        """Read the headers from `position` on and note the markers. Yields after each marker."""
        segment = self._wanted.segment
        file = self._wanted.source.open(self._wanted)
        try:
            yield from self._markers_in(file, position, file.size())
        finally:
            file.close()
        files = LocalFiles()
        for listed in list_segments(files, posixpath.dirname(segment.name)):
            if listed.base_offset > segment.start_offset:
                try:
                    following = files.open(listed.path(), read_only=True)
                except FileNotFoundError:
                    raise SegmentReplaced(
                        f"{self._wanted}: {listed.path()} went while the markers of transactions were looked for"
                    ) from None
                try:
                    yield from self._markers_in(following, 0, following.size())
                finally:
                    following.close()

    def _markers_in(self, file: SegmentFile, position: int, end_position: int) -> Iterator[None]:
        for found, header in iterate_batch_headers(file, position, end_position):
            if header.is_control and header.is_transactional:
                offsets, aborts = self._markers.setdefault(header.producer_id, ([], []))
                offsets.append(header.base_offset)
                aborts.append(is_abort(bytes(file.pread(header.size, found))))
                yield
