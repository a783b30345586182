"""Cuts a log into pieces of whole batches between two offsets, and checks each batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from moldau.backup.manifest import Piece
from moldau.backup.sources.port import LogReader
from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    parse_header,
    whole_batch,
)
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.batch_run import BatchRun

PIECE_SIZE: Final = 16 << 20
"""The minimum size of a piece in bytes. The last piece of a log may be smaller."""


class PieceContent(Protocol):
    """The memory or the file into which the bytes of a piece are copied from the log."""

    def write(self, data: BytesLike, /) -> None:
        """Append bytes to the piece. It may block."""

    def discard(self) -> None:
        """Free the memory, or remove the file. An object that was already stored remains."""


C = TypeVar("C", bound=PieceContent)


class MemoryContent:
    """The bytes of a piece in memory: a `PieceContent`, and a `ChunkedContent`."""

    def __init__(self) -> None:
        self.parts: list[BytesLike] = []
        self.size = 0

    def write(self, data: BytesLike, /) -> None:
        self.parts.append(data)
        self.size += len(data)

    async def chunks(self) -> AsyncIterator[BytesLike]:
        for part in self.parts:
            yield part

    def discard(self) -> None:
        self.parts.clear()


class CutPiece(NamedTuple, Generic[C]):
    """A piece of a log with its bytes."""

    piece: Piece
    content: C
    last_epoch: int
    """The leader epoch of the last batch up to the end of this piece; -1 if there is none."""

    @property
    def size(self) -> int:
        return self.piece.size


class LogCutter(Generic[C]):
    """Copies the batches from one offset to another into pieces. The first and the last batch are copied whole, even if
    they begin before the first offset or end after the last one. Blocks while the source reads.
    """

    def __init__(
        self,
        reader: LogReader,
        start_offset: int,
        end_offset: int,
        new_content: Callable[[], C],
        piece_size: int,
    ) -> None:
        """`new_content` creates the destination of each new piece."""
        self._reader = reader
        self._new_content = new_content
        self._offset = start_offset
        self._end_offset = end_offset
        self._piece_size = piece_size
        self._taken = 0
        """The number of bytes at the begin of the last read that became part of a piece."""
        self._run = BatchRun(0, NO_LEADER_EPOCH, end_offset, INT64_MAX, 0)
        """The compiled loop that checks batches. With INT64_MAX as its fourth argument it collects no producers."""

    def cut_next_piece(self) -> CutPiece[C] | None:
        """Return the next piece, or None at the end. Raises `MalformedMessage` for a damaged batch, and what the source
        and the content of the piece raise."""
        if self._offset >= self._end_offset:
            return None
        content = self._new_content()
        try:
            return self._cut_into(content)
        except BaseException:
            content.discard()
            raise

    def _cut_into(self, content: C) -> CutPiece[C]:
        first_offset, size, crc = self._offset, 0, 0
        self._run.max_timestamp = NO_TIMESTAMP
        while size < self._piece_size and self._offset < self._end_offset:
            data = self._reader.read(self._offset, self._taken)
            self._taken = self._walk(data)
            if not self._taken:
                self._offset = self._end_offset  # The log has no more batches below it.
                break
            if not size:
                first_offset = min(first_offset, parse_header(data, 0, True).base_offset)
            self._offset = self._run.next_offset
            part = memoryview(data)[: self._taken]
            content.write(part)
            size, crc = size + len(part), crc32c(part, crc)
        piece = Piece(first_offset, self._offset, size, crc, self._run.max_timestamp)
        return CutPiece(piece, content, self._run.leader_epoch)

    def _walk(self, data: bytes) -> int:
        """Check the batches in `data` that begin before the end offset. Returns their size in bytes, without an
        incomplete batch at the end of `data`.
        """
        run, position = self._run, 0
        while position < len(data):
            position = run.check_batches(data, position, 0)
            if run.next_offset >= self._end_offset:
                break
            header = whole_batch(data, position, len(data))
            if header is None or header.base_offset >= self._end_offset:
                break
            self._check(data, position, header)
            if header.magic == MAGIC:
                run.leader_epoch = header.partition_leader_epoch  # The walk stopped at a new one.
            else:
                run.leader_epoch, run.next_offset = NO_LEADER_EPOCH, header.next_offset
                run.max_timestamp = max(run.max_timestamp, header.max_timestamp)
                position += header.size
        return position

    def _check(self, data: bytes, position: int, header: BatchHeader) -> None:
        """Raise `MalformedMessage` unless the batch at which `run.check_batches` stopped is intact, follows the
        previous batch, and either starts a new leader epoch or has an older format.
        """
        offset, run = header.base_offset, self._run
        if offset < run.next_offset or header.last_offset_delta < 0:
            raise MalformedMessage(f"a batch with the offsets {offset} to {header.last_offset} after {run.next_offset}")
        if not crc_is_valid(data, position, header):
            raise MalformedMessage(f"the checksum of the batch at offset {offset} is wrong")
        if header.magic == MAGIC and header.partition_leader_epoch == run.leader_epoch:
            raise MalformedMessage(f"the batch at offset {offset} cannot be read")
