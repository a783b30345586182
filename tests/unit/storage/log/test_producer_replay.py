"""What a start knows of the batches that a producer may repeat, and what a truncation leaves of the producers."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.storage.log import producer_replay, truncation
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
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


def written_log() -> Log:
    """A log of several segments, with three producers, of which two are in transactions."""
    disk = SimulatedDisk("a seed")
    disk.make_directories(DIRECTORY)
    log = open_log(disk, DIRECTORY)
    for number in range(12):
        for producer_id in (1, 2, 3):
            data = batch("a", "b", producer=(producer_id, 0, 2 * number), is_transactional=producer_id < 3)
            assert log.append_as_leader(data, 0, NOW_MS).error is ErrorCode.NONE
        if number % 4 == 3:
            for producer_id, commits in ((1, False), (2, True)):
                marker = end_transaction_marker(
                    commits=commits, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
                )
                result = log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
                assert result.error is ErrorCode.NONE
    assert len(log.segments) > 3
    return log


def what_is_known(log: Log) -> tuple[Any, ...]:
    producers = log.producers
    entries = {
        key: (each.producer_epoch, each.batches, each.last_timestamp, each.coordinator_epoch)
        for key, each in producers.entries.items()
    }
    unstable = producers.first_unstable_offset()
    return (
        entries,
        producers.undecided_transactions,
        unstable,
        producers.map_end_offset,
        log.aborted_transactions(0, 99),
    )


def test_a_truncation_finds_the_producers_that_were_restored_in_steps_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_replay, "STEP_SIZE", 1)
    for offset in range(2, written_log().end_offset):
        plain, prepared = written_log(), written_log()
        plain.truncate_to(offset, NOW_MS)
        prepared.lower_recovery_point(offset)
        for _ in prepared.prepare_producers(offset, NOW_MS):
            prepared.release_files()
            prepared.release_files()
        with monkeypatch.context() as patch:
            patch.delattr(truncation, "load_producers")
            prepared.truncate_to(offset, NOW_MS)
        assert what_is_known(prepared) == what_is_known(plain)
        assert prepared.prepared_producers is None


def test_producers_of_a_truncation_that_was_given_up_are_not_used_for_another_one() -> None:
    plain, prepared = written_log(), written_log()
    prepared.lower_recovery_point(40)
    list(prepared.prepare_producers(40, NOW_MS))
    prepared.end_truncation()
    for log in (plain, prepared):
        log.truncate_to(20, NOW_MS)
        for sequence in range(0, 20, 2):
            assert log.append_as_leader(batch("c", "d", producer=(9, 0, sequence)), 1, NOW_MS).error is ErrorCode.NONE
        assert log.end_offset == 40
        log.append_as_leader(batch("e"), 1, NOW_MS)
        log.truncate_to(40, NOW_MS)
    assert what_is_known(prepared) == what_is_known(plain)
