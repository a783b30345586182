"""The decompressed batches of a slice of a .log file, gathered into chunks that are worth a call to numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.batch_iterator import iterate_batches
from protocol.compression import decompress
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, crc_is_valid, parse_header
from protocol.record_reader import RECORDS_SIZE_MAX
from spark_jobs.planning import Slice
from storage.files.log_paths import DELETED_SUFFIX
from storage.files.port import File, FileSystem

READ_SIZE = 8 << 20
"""Bytes read at once; a larger batch is read as a whole."""
CHUNK_SIZE = 16 << 20
"""Decompressed bytes of a chunk, which may exceed it by one batch."""


@dataclass(slots=True)
class Chunk:
    """Batches and their expanded records, in order."""

    headers: list[BatchHeader] = field(default_factory=list)
    bodies: list[BytesLike] = field(default_factory=list)
    size: int = 0


def chunks_of(fs: FileSystem, wanted: Slice) -> Iterator[Chunk]:
    """The batches that hold records of a slice; control batches and batches without records are left out.

    Raises `MalformedMessage`, which names the file and the position, where a batch cannot be read; OSError.
    """
    chunk = Chunk()
    for position, header, batch in batches_of(fs, wanted):
        if header.is_control or header.last_offset < wanted.start_offset:
            continue
        if header.base_offset >= wanted.end_offset:
            break
        try:
            body = expand(header, batch)
        except MalformedMessage as malformed:
            raise MalformedMessage(f"{wanted.path}, position {position}: {malformed}") from None
        if not body and not header.records_count:  # an empty batch: compaction has removed all of its records
            continue
        chunk.headers.append(header)
        chunk.bodies.append(body)
        chunk.size += len(body)
        if chunk.size >= CHUNK_SIZE:
            yield chunk
            chunk = Chunk()
    if chunk.headers:
        yield chunk


def expand(header: BatchHeader, batch: memoryview) -> BytesLike:
    """The decompressed records of a batch. Raises `MalformedMessage`, also where the checksum does not match."""
    if not crc_is_valid(batch, 0, header):
        raise MalformedMessage("the checksum of the batch does not match")
    return decompress(header.codec, batch[HEADER_SIZE:], size_max=RECORDS_SIZE_MAX)


def batches_of(fs: FileSystem, wanted: Slice) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of the whole batches in the slice; a torn batch at its end is left."""
    file = open_segment(fs, wanted.path)
    try:
        position = wanted.start_position
        while position + HEADER_SIZE <= wanted.end_position:
            piece = memoryview(read_piece(file, position, wanted))
            batches = iterate_batches(piece)
            for inside, header in batches:
                yield position + inside, header, piece[inside : inside + header.size]
            if not batches.position:
                return
            position += batches.position
    except MalformedMessage as malformed:
        raise MalformedMessage(f"{wanted.path}: {malformed}") from None
    finally:
        file.close()


def open_segment(fs: FileSystem, path: str) -> File:
    """Open a segment that was there when the read was planned: under its name, or as `.deleted` in the minute after
    retention deleted it."""
    try:
        return fs.open(path, read_only=True)
    except FileNotFoundError as gone:
        try:
            return fs.open(path + DELETED_SUFFIX, read_only=True)
        except FileNotFoundError:
            raise gone from None


def read_piece(file: File, position: int, wanted: Slice) -> bytes:
    """Read from the beginning of a batch on, at least that whole batch."""
    piece = file.pread(min(READ_SIZE, wanted.end_position - position), position)
    if len(piece) < HEADER_SIZE:
        return piece
    size = parse_header(piece).batch_length + LOG_OVERHEAD
    if len(piece) < size <= wanted.end_position - position:
        piece = file.pread(size, position)
    return piece
