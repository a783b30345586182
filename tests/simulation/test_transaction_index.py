"""No loss of power brings an aborted transaction into a transaction index that the log does not have."""

from __future__ import annotations

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.segment.transaction_index import ENTRY
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.stories import NOW_MS, batch, open_log

SEEDS = range(20)


def opened(disk: SimulatedDisk, *, recovery_point: int = 0, is_clean: bool = False) -> Log:
    disk.make_directories("/t-0")
    return open_log(disk, "/t-0", recovery_point=recovery_point, clean=is_clean)


def send(log: Log, producer_id: int) -> None:
    data = batch("x", producer=(producer_id, 0, 0), is_transactional=True)
    assert log.append_as_leader(data, 0, NOW_MS).error is ErrorCode.NONE


def end(log: Log, producer_id: int, *, commits: bool) -> None:
    marker = end_transaction_marker(
        commits=commits, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
    )
    assert log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR).error is ErrorCode.NONE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("checkpointed", [0, 1])
def test_the_entries_of_truncated_markers_do_not_come_back(checkpointed: int, seed: int) -> None:
    """The process that truncated was killed before a flush: the next one syncs the index, whatever recovery point it
    began with."""
    disk = SimulatedDisk(f"{seed}")
    log = opened(disk)
    send(log, 1)
    end(log, 1, commits=False)
    log.flush(NOW_MS)
    log.lower_recovery_point(1)
    log.truncate_to(1, NOW_MS)
    disk.end_process()
    log = opened(disk, recovery_point=checkpointed)
    end(log, 1, commits=True)
    log.flush(NOW_MS)
    disk.crash()
    again = opened(disk, recovery_point=2)
    assert (again.end_offset, again.aborted_transactions(0, 100)) == (2, [])


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize(("count", "kept"), [(1, 0), (2, 0), (2, 1)])
def test_zeros_in_the_place_of_entries_are_damage(count: int, kept: int, *, is_clean: bool) -> None:
    """Otherwise an entry of zeros is an aborted transaction of producer 0, at offset 0."""
    disk = SimulatedDisk("a seed")
    log = opened(disk)
    for producer_id in range(1, count + 1):
        send(log, producer_id)
        end(log, producer_id, commits=False)
    expected = log.aborted_transactions(0, 100)
    path, end_offset = log.segments[0].path(".txnindex"), log.end_offset
    log.close(NOW_MS, clean=True)
    disk.open(path).pwrite(bytes((count - kept) * ENTRY.size), kept * ENTRY.size)
    again = opened(disk, recovery_point=end_offset, is_clean=is_clean)
    assert again.aborted_transactions(0, 100) == expected
