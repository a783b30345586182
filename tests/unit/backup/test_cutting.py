"""Cutting a log: its bytes stay, each damage is found, nothing beyond the end is taken."""

from __future__ import annotations

import pytest

from moldau.backup.cutting import CutPiece, LogCutter, MemoryContent
from moldau.protocol.primitives import MalformedMessage, crc32c
from tests.unit.backup.logs import MemoryLog, batch, batches

SIZE = len(batch(0))


def cut(log: MemoryLog, start: int, end: int, piece_size: int = 400) -> list[CutPiece[MemoryContent]]:
    cutter = LogCutter(log, start, end, MemoryContent, piece_size)
    return list(iter(cutter.cut_next_piece, None))


def content(pieces: list[CutPiece[MemoryContent]]) -> bytes:
    return b"".join(bytes(part) for piece in pieces for part in piece.content.parts)


@pytest.mark.parametrize("read_size", [1, SIZE, SIZE + 1, 5 * SIZE, 1 << 20])
@pytest.mark.parametrize("piece_size", [1, 400, 1 << 20])
def test_the_pieces_have_the_bytes_of_the_log(read_size: int, piece_size: int) -> None:
    log = MemoryLog("t", batches(0, 40), read_size=read_size)
    pieces = cut(log, 0, 40, piece_size)
    assert content(pieces) == b"".join(log.log)
    assert [each.piece.first_offset for each in pieces] == [0, *(each.piece.end_offset for each in pieces[:-1])]
    assert pieces[-1].piece.end_offset == 40
    for each in pieces:
        data = content([each])
        assert (each.piece.size, each.piece.crc32c) == (len(data), crc32c(data, 0))


@pytest.mark.parametrize("read_size", [1, 1 << 20])
def test_nothing_beyond_the_end_is_taken(read_size: int) -> None:
    log = MemoryLog("t", batches(0, 40), read_size=read_size)
    for end in range(0, 40, 2):
        assert content(cut(log, 0, end)) == b"".join(batches(0, end))


def test_a_batch_that_holds_the_first_or_last_offset_is_taken_whole() -> None:
    log = MemoryLog("t", [batch(0, 10), batch(10, 10), batch(20, 10)])
    (piece,) = cut(log, 15, 25, 1 << 20)
    assert content([piece]) == log.log[1] + log.log[2]
    assert (piece.piece.first_offset, piece.piece.end_offset) == (10, 30)


def test_ranges_without_batches_belong_to_a_piece() -> None:
    """Compaction has removed batches in the middle, and all behind offset 8."""
    log = MemoryLog("t", [batch(0), batch(6)], end=20)
    pieces = cut(log, 0, 20, 1)
    assert [each.piece[:3] for each in pieces] == [(0, 2, SIZE), (2, 8, SIZE), (8, 20, 0)]
    assert [each.piece[:3] for each in cut(log, 0, 20)] == [(0, 20, 2 * SIZE)]


def test_leader_epochs_may_change_and_the_last_is_told() -> None:
    log = MemoryLog("t", [batch(0, epoch=3), batch(2, epoch=5), batch(4, epoch=5)])
    assert [each.last_epoch for each in cut(log, 0, 6, 1)] == [3, 5, 5]


def test_the_largest_timestamp_is_that_of_the_piece() -> None:
    log = MemoryLog("t", [batch(4), batch(8), batch(12)])
    assert [each.piece.max_timestamp_ms for each in cut(log, 4, 14, 1)] == [1_004, 1_008, 1_012]


def test_each_damaged_byte_that_a_checksum_covers_is_found() -> None:
    for position in range(21, SIZE):
        damaged = bytearray(batch(2))
        damaged[position] ^= 0x55
        with pytest.raises(MalformedMessage):
            cut(MemoryLog("t", [batch(0), bytes(damaged), batch(4)]), 0, 6)


def test_offsets_that_go_back_are_refused() -> None:
    log = MemoryLog("t", [batch(0), batch(4), batch(2), batch(6)], read_size=1 << 20)
    with pytest.raises(MalformedMessage, match="offsets 2 to 3 after 6"):
        cut(log, 0, 8)
