"""Reads the logs of a backup piece by piece, and checks each piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from moldau.backup.layout import metadata_key, piece_key
from moldau.backup.manifest import BackupManifest, PartitionBackup, PartitionKey, Piece
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import MalformedMessage, crc32c
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.storage.tiered.port import CorruptObject, RemoteStorage


class PieceBatches(NamedTuple):
    """The content of a piece: its bytes, and the headers of its batches. The bytes are whole batches and nothing
    else.
    """

    piece: Piece
    data: bytes
    batches: Sequence[tuple[int, BatchHeader]]
    """The position and the header of each batch of the piece, in the order of offsets."""


async def read_pieces(
    storage: RemoteStorage, partition: PartitionKey, backup: PartitionBackup, end: int | None = None
) -> AsyncIterator[PieceBatches]:
    """Yield the pieces of a partition that begin before the offset `end`, in order. At most one piece is in memory.

    Each piece is checked: its size and CRC, the CRC of every batch, and the order of the offsets. Raises
    `CorruptObject` at the first damage, and `RemoteStorageError`.
    """
    for piece in backup.pieces:
        if end is not None and piece.first_offset >= end:
            return
        if piece.size:
            yield await read_piece(storage, partition, piece)


async def read_piece(storage: RemoteStorage, partition: PartitionKey, piece: Piece) -> PieceBatches:
    """Read one piece of a log and check it. Raises `CorruptObject`, and `RemoteStorageError`."""
    key = piece_key(partition, piece)
    data = await _read_checked(storage, key, piece.size, piece.crc32c)
    try:
        batches = list(iterate_batches(data))
    except MalformedMessage as malformed:
        raise CorruptObject(f"{key}: {malformed}") from None
    following = piece.first_offset
    for position, header in batches:
        if header.base_offset < following or header.next_offset > piece.end_offset:
            raise CorruptObject(f"{key}: a batch has the offsets {header.base_offset} to {header.last_offset}")
        if not crc_is_valid(data, position, header):
            raise CorruptObject(f"{key}: the checksum of the batch at offset {header.base_offset} is wrong")
        following = header.next_offset
    whole = batches[-1][0] + batches[-1][1].size if batches else 0
    if whole != piece.size:
        raise CorruptObject(f"{key}: no whole batch in its last {piece.size - whole} bytes")
    return PieceBatches(piece, data, batches)


async def read_batches(
    storage: RemoteStorage, partition: PartitionKey, backup: PartitionBackup, end: int | None = None
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a partition that end at or before the offset `end`, each with its bytes as in the log.
    Raises `CorruptObject` and `RemoteStorageError`."""
    async for _, data, batches in read_pieces(storage, partition, backup, end):
        view = memoryview(data)
        for position, header in batches:
            if end is not None and header.next_offset > end:
                return
            yield header, view[position : position + header.size]


async def read_metadata(storage: RemoteStorage, manifest: BackupManifest) -> bytes:
    """Read the metadata snapshot of a backup, for `load_snapshot` in `kraft/snapshot/batches.py`. Raises
    `CorruptObject`, and `RemoteStorageError`."""
    metadata = manifest.metadata
    return await _read_checked(storage, metadata_key(metadata), metadata.size, metadata.crc32c)


async def _read_checked(storage: RemoteStorage, key: str, size: int, crc: int) -> bytes:
    data = bytes(await storage.get(key, 0, size + 1))
    if len(data) != size:
        raise CorruptObject(f"{key} has {len(data)} bytes{'' if len(data) < size else ' or more'}, not {size}")
    if crc32c(data, 0) != crc:
        raise CorruptObject(f"{key}: its checksum is wrong: it was damaged after it was written")
    return data
