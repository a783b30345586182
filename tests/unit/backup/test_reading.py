"""Reading a backup: the bytes of the log come back; each damage of a piece is found."""

from __future__ import annotations

import asyncio

import pytest

from moldau.backup.layout import piece_key
from moldau.backup.manifest import PartitionBackup, PartitionKey, Piece
from moldau.backup.reading import read_batches, read_pieces
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.tiered.port import CorruptObject
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.storage.tiered.storages import simulated

KEY = PartitionKey("orders", bytes(16), 0)


def batch(offset: int, count: int = 2) -> bytes:
    records = [Record(None, b"v%d" % (offset + number), 1_000 + offset) for number in range(count)]
    return build_batch(records, base_offset=offset)


LOG = [[batch(0), batch(2)], [batch(6)]]
"""The batches of two pieces; the log has no records at the offsets 4, 5 and 8."""


def piece_of(data: bytes, first: int, end: int) -> Piece:
    return Piece(first, end, len(data), crc32c(data, 0), 0)


def filled(pieces: list[tuple[Piece, bytes]]) -> SimulatedBucket:
    bucket = SimulatedBucket()
    for piece, data in pieces:
        bucket.store(piece_key(KEY, piece), data)
    return bucket


def stored() -> tuple[SimulatedBucket, PartitionBackup]:
    first, second = b"".join(LOG[0]), b"".join(LOG[1])
    pieces = [(piece_of(first, 0, 4), first), (piece_of(second, 4, 8), second)]
    backup = PartitionBackup(0, 1, 9, 0, (*(piece for piece, _ in pieces), Piece(8, 9, 0, 0, -1)))
    return filled(pieces), backup


def batches_in(bucket: SimulatedBucket, backup: PartitionBackup, end: int | None = None) -> list[bytes]:
    async def read() -> list[bytes]:
        storage, _ = simulated(bucket=bucket)
        return [bytes(data) async for _, data in read_batches(storage, KEY, backup, end)]

    return asyncio.run(read())


def test_the_batches_are_those_of_the_log() -> None:
    assert batches_in(*stored()) == [*LOG[0], *LOG[1]]


def test_batches_that_reach_past_the_end_are_left_out() -> None:
    bucket, backup = stored()
    assert batches_in(bucket, backup, end=8) == [*LOG[0], *LOG[1]]
    assert batches_in(bucket, backup, end=7) == LOG[0]
    assert batches_in(bucket, backup, end=3) == LOG[0][:1]
    assert batches_in(bucket, backup, end=0) == []


def test_each_damaged_byte_of_a_piece_is_found() -> None:
    for position in range(len(LOG[1][0])):
        bucket, backup = stored()
        key = piece_key(KEY, backup.pieces[1])
        bucket.damage(key, position)
        with pytest.raises(CorruptObject, match=key):
            batches_in(bucket, backup)


def test_a_piece_that_is_shorter_or_longer_is_refused() -> None:
    for data in (LOG[1][0][:-1], LOG[1][0] + b"x"):
        bucket, backup = stored()
        bucket.store(piece_key(KEY, backup.pieces[1]), data)
        with pytest.raises(CorruptObject, match="bytes"):
            batches_in(bucket, backup)


WRONG = bytearray(batch(4))
WRONG[-1] ^= 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (batch(2), "offsets 2 to 3"),
        (batch(7), "offsets 7 to 8"),
        (batch(6) + batch(4), "offsets 4 to 5"),
        (bytes(WRONG), "checksum of the batch at offset 4"),
        (batch(4) + batch(6)[:-1], "no whole batch in its last"),
        (b"\\0" * 100, "piece"),
    ],
)
def test_a_piece_that_was_written_wrong_is_refused(data: bytes, said: str) -> None:
    """The CRC of the piece is right: what it has is not what the manifest says."""
    piece = piece_of(data, 4, 8)

    async def read() -> None:
        storage, _ = simulated(bucket=filled([(piece, data)]))
        async for _ in read_pieces(storage, KEY, PartitionBackup(0, 4, 8, 0, (piece,))):
            pass

    with pytest.raises(CorruptObject, match=said):
        asyncio.run(read())
