"""The power is cut at every step of an erasure: the next start finds the orders, and the receipts say what went."""

from __future__ import annotations

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.erasure.receipts import read_or_new_receipt
from moldau.storage.log.log import Log
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import SimulatedCrash
from tests.unit.storage.compaction.histories import NOW_MS, Stored, checkpoint, end_transaction, send, stored
from tests.unit.storage.erasure.orders import carry_out_all, runs_from, send_order
from tests.unit.storage.erasure.test_erasing import assert_exactly_gone, offsets_of, producers_of

pytestmark = pytest.mark.slow

ROOT = "/data"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0)


def load(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    owner = LogDirectory.open(disk, ROOT, lambda _: None)
    return owner, owner.load_log("t", 0, CONFIG, NOW_MS, lambda _: None)


def write_history(disk: SimulatedDisk) -> tuple[LogDirectory, Log, list[int]]:
    """Idempotent batches and transactions over a few segments, and two orders that are durable; their offsets."""
    owner, log = load(disk)
    for number in range(8):
        if number % 4 == 1:
            send(log, ("k", "open"), producer=(7, 0, number // 4), is_transactional=True)
        if number % 4 == 3:
            end_transaction(log, 7, 0, commits=number == 3)
        send(log, ("a", f"{number:030}"), ("b", "x"), codec=Codec(number % 5), producer=(5, 0, 2 * number))
    order_offsets = [send_order(log, runs_from(named), number) for number, named in enumerate(NAMED_BY)]
    log.flush(NOW_MS)
    checkpoint(owner)
    return owner, log, order_offsets


NAMED_BY = {0, 3, 4, 5, 9, 15}, {4, 9, 10, 17}
"""What the two orders name: they share some offsets."""
NAMED = NAMED_BY[0] | NAMED_BY[1]


def expected() -> tuple[list[Stored], dict[int, tuple[int, int, int]], list[int], int, int]:
    disk = SimulatedDisk(seed=0)
    owner, log, order_offsets = write_history(disk)
    before, producers, first_step = stored(log), producers_of(log), disk.steps
    carry_out_all(disk, log, order_offsets, owner)
    return before, producers, order_offsets, first_step, disk.steps


BEFORE, PRODUCERS, ORDER_OFFSETS, FIRST_STEP, LAST_STEP = expected()


def finish(disk: SimulatedDisk) -> None:
    """Start, carry out what is pending, and compare."""
    owner, log = load(disk)
    assert producers_of(log) == PRODUCERS
    if left := tuple(log.erase_orders.offsets):
        assert log.erase_orders.hides_offset_in(0, left[0])
        carry_out_all(disk, log, left, owner)
    assert_exactly_gone(BEFORE, stored(log), NAMED)
    assert producers_of(log) == PRODUCERS
    data = {each.offset for batch in BEFORE if not batch.header.is_control for each in batch.records}
    for offset, named in zip(ORDER_OFFSETS, (NAMED_BY[0], NAMED_BY[1] - NAMED_BY[0]), strict=True):
        order = erase_order_at(log.segments, offset)
        assert order is not None
        receipt = read_or_new_receipt(disk, log.directory, order, offset)
        assert receipt.done_ms is not None
        assert {each for entry in receipt.segments for each in offsets_of(entry.erased)} == named & data
    names = disk.list_directory(log.directory)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_step(seed: int) -> None:
    for step in range(FIRST_STEP + 1, LAST_STEP + 1):
        disk = SimulatedDisk(seed=f"{seed}/{step}")
        owner, log, order_offsets = write_history(disk)
        disk.crash_at_step = step
        with pytest.raises(SimulatedCrash):
            carry_out_all(disk, log, order_offsets, owner)
        disk.crash()
        finish(disk)


def test_the_process_is_killed_at_every_step() -> None:
    for step in range(FIRST_STEP + 1, LAST_STEP + 1):
        disk = SimulatedDisk(seed=step)
        owner, log, order_offsets = write_history(disk)
        disk.crash_at_step = step
        with pytest.raises(SimulatedCrash):
            carry_out_all(disk, log, order_offsets, owner)
        disk.end_process()
        disk.power_on()
        finish(disk)


def test_an_order_that_was_never_flushed_is_found_in_the_batches() -> None:
    disk = SimulatedDisk(seed=1)
    _, log, _ = write_history(disk)
    second = send_order(log, [Run(1, 1)], number=7)
    disk.end_process()
    _, log = load(disk)
    assert log.erase_orders.offsets[-1] == second
