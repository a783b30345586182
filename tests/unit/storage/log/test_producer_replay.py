"""What a start knows of the batches that a producer may repeat."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.stories import NOW_MS, batch, open_log

DIRECTORY = "/data/t-0"


@pytest.mark.parametrize("torn", [b"", b"\x00" * 100, b"\xff" * 100], ids=["nothing", "zeros", "garbage"])
def test_the_last_batches_are_known_again_whatever_a_crash_left_behind_them(torn: bytes) -> None:
    disk = SimulatedDisk("a seed")
    disk.make_directories(DIRECTORY)
    log = open_log(disk, DIRECTORY, LogConfig())
    for sequence in range(8):
        assert log.append_as_leader(batch("x", producer=(7, 0, sequence)), 0, NOW_MS).error == ErrorCode.NONE
    path, end_offset = log.active.path(".log"), log.end_offset
    log.close(NOW_MS, clean=True)
    file = disk.open(path)
    file.append([torn])
    file.close()

    again = open_log(disk, DIRECTORY, LogConfig(), recovery_point=end_offset)
    assert again.end_offset == end_offset
    for sequence in range(3, 8):
        repeated = again.append_as_leader(batch("x", producer=(7, 0, sequence)), 0, NOW_MS)
        assert (repeated.error, repeated.base_offset) == (ErrorCode.NONE, sequence), "the offset it was stored at"
    assert again.append_as_leader(batch("x", producer=(7, 0, 2)), 0, NOW_MS).error != ErrorCode.NONE
    assert again.append_as_leader(batch("x", producer=(7, 0, 8)), 0, NOW_MS).base_offset == end_offset
