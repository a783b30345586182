"""Unsent bytes leave in order and in small pieces. A slice of a file is read when it is taken, never from the disk."""

from __future__ import annotations

import pytest

from moldau.broker.network.tls.stream import PIECE_SIZE_MAX, UnsentBytes
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.memory_file import MemoryFile, memory_slice
from moldau.storage.files.open_files import OpenFile
from tests.support.cold_file import ColdFile

DATA = bytes(range(256)) * 1024


def taken(unsent: UnsentBytes) -> list[bytes]:
    pieces = []
    while unsent:
        piece = unsent.take_piece()
        assert not isinstance(piece, FileSlice)
        pieces.append(bytes(piece))
    return pieces


def test_bytes_and_slices_keep_their_order_and_only_bytes_count_as_memory() -> None:
    unsent = UnsentBytes()
    assert not unsent
    for chunk in (b"head", b"", memory_slice(memoryview(DATA)), bytearray(DATA), memory_slice(memoryview(b""))):
        unsent.put(chunk)
    assert unsent.held_size == 4 + len(DATA)
    pieces = taken(unsent)
    assert b"".join(pieces) == b"head" + DATA + DATA
    assert max(map(len, pieces)) == PIECE_SIZE_MAX
    assert unsent.held_size == 0


def test_a_slice_that_the_disk_has_is_not_taken_before_it_is_warmed() -> None:
    file = ColdFile(DATA)
    unsent = UnsentBytes()
    unsent.put(FileSlice(OpenFile(file), 0, len(DATA)))
    place = unsent.take_piece()
    assert isinstance(place, FileSlice) and unsent
    place.warm()
    assert b"".join(taken(unsent)) == DATA


def test_a_file_that_became_shorter_is_an_error() -> None:
    unsent = UnsentBytes()
    unsent.put(FileSlice(OpenFile(MemoryFile(memoryview(b"short"))), 0, 100))
    with pytest.raises(OSError, match="shorter"):
        unsent.take_piece()


def test_cleared_bytes_are_gone() -> None:
    unsent = UnsentBytes()
    unsent.put(DATA)
    unsent.clear()
    assert not unsent and unsent.held_size == 0
