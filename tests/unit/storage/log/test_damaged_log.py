"""Stretches of a stored file in which a batch is not what was written."""

from __future__ import annotations

import pytest

from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.open_files import OpenFile
from moldau.storage.log.damaged_log import damage_of
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.stories import batch


def stored(data: bytes, position: int, size: int) -> FileSlice:
    file = SimulatedDisk("a seed").open("/file", create=True)
    file.append([data])
    return FileSlice(OpenFile(file), position, size)


WHOLE = b"".join(bytes(batch(str(number), base_offset=number)) for number in range(3))
SIZE = len(WHOLE) // 3


@pytest.mark.parametrize("size", [0, 5, SIZE, 2 * SIZE + 70, 3 * SIZE])
def test_whole_batches_are_sound_and_one_that_is_cut_short_is_not_looked_at(size: int) -> None:
    damaged = WHOLE[:size] + bytes(3 * SIZE - size)
    assert damage_of(stored(damaged, 0, size)) is None


def test_the_first_bad_batch_is_told_also_behind_others_and_inside_a_file() -> None:
    data = bytearray(WHOLE)
    data[2 * SIZE - 1] ^= 1
    assert damage_of(stored(bytes(data), 0, 3 * SIZE)) == f"checksum mismatch at position {SIZE}"
    assert damage_of(stored(bytes(data), 2 * SIZE, SIZE)) is None


def test_where_no_batch_can_begin_is_damage() -> None:
    damage = damage_of(stored(WHOLE[:SIZE] + b"\xff" * SIZE, 0, 2 * SIZE))
    assert damage is not None and "no batch at position" in damage
