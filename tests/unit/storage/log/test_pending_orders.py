"""The pending orders of a log: appended, truncated, deleted with their segment, found again, and what they hide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.erase_orders import Run
from moldau.storage.files.port import write_atomically
from moldau.storage.log.log import Log
from moldau.storage.log.pending_orders import ERASE_ORDER_CHECKPOINT, PendingEraseOrders
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import NOW_MS, end_transaction, send
from tests.unit.storage.erasure.orders import runs_from, send_order

DIRECTORY = "/data/t-0"
CONFIG = LogConfig(segment_bytes=1000)


def opened(disk: SimulatedDisk, *, clean: bool = True, recovery_point: int = 0) -> Log:
    return Log.open(disk, DIRECTORY, CONFIG, clean_shutdown=clean, recovery_point=recovery_point, now_ms=NOW_MS)


def test_an_order_is_pending_after_a_clean_stop() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    send(log, ("a", "1"))
    order_offset = send_order(log, [Run(0, 0)])
    log.close(NOW_MS, clean=True)
    log = opened(disk)
    assert log.erase_orders.offsets == [order_offset]
    assert log.erase_orders.hidden_runs == (Run(0, 0),)


def test_a_follower_notes_the_order_that_it_fetches() -> None:
    leader, follower = opened(SimulatedDisk()), opened(SimulatedDisk())
    send(leader, ("a", "1"))
    order_offset = send_order(leader, [Run(0, 0)])
    follower.append_as_follower(leader.segments[0].file().pread(leader.size, 0), 0, NOW_MS)
    assert follower.erase_orders.offsets == [order_offset]


def test_a_marker_of_a_transaction_is_no_order() -> None:
    log = opened(SimulatedDisk())
    send(log, ("a", "1"), producer=(7, 0, 0), is_transactional=True)
    end_transaction(log, 7, 0, commits=True)
    assert not log.erase_orders.offsets


def test_a_truncation_takes_the_order_and_shows_what_it_hid() -> None:
    log = opened(SimulatedDisk())
    send(log, ("a", "1"))
    order_offset = send_order(log, [Run(0, 0)])
    log.erase_orders.hide_records(log.segments)
    log.truncate_to(order_offset, NOW_MS)
    assert not log.erase_orders.offsets
    assert not log.erase_orders.hidden_runs


def test_an_order_goes_with_its_segment() -> None:
    log = Log.open(SimulatedDisk(), DIRECTORY, LogConfig(retention_ms=1), clean_shutdown=True, now_ms=NOW_MS)
    send(log, ("a", "1"))
    send_order(log, [Run(0, 0)])
    log.roll(NOW_MS)
    log.delete_old_segments(NOW_MS + 10_000, log.end_offset)
    assert not log.erase_orders.offsets


def test_a_damaged_file_is_made_again_from_the_batches() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    send(log, ("a", "1"))
    order_offset = send_order(log, [Run(0, 0)])
    log.close(NOW_MS, clean=True)
    write_atomically(disk, f"{DIRECTORY}/{ERASE_ORDER_CHECKPOINT}", b"no checkpoint")
    assert opened(disk).erase_orders.offsets == [order_offset]


@pytest.mark.parametrize("content", [b"no checkpoint", b"0\n1\n3\n"], ids=["damaged", "behind the damage"])
def test_a_damaged_header_on_the_way_to_the_orders_is_damage_of_the_log(content: bytes) -> None:
    """Other errors than CorruptLog and OSError would stop the start of the whole broker."""
    disk = SimulatedDisk()
    log = opened(disk)
    for number in range(3):
        send(log, ("a", str(number)))
    send_order(log, [Run(0, 0)])
    log.roll(NOW_MS)
    place = log.segments[0].find_batch(1)
    assert place is not None
    log.close(NOW_MS, clean=True)
    disk.open(log.segments[0].path(".log")).pwrite(b"\0\0\0\1", place.position + 8)
    write_atomically(disk, f"{DIRECTORY}/{ERASE_ORDER_CHECKPOINT}", content)
    with pytest.raises(CorruptLog, match="in a part of the log that was flushed"):
        opened(disk)


def test_an_offset_without_an_order_is_dropped() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    send(log, ("a", "1"))
    log.close(NOW_MS, clean=True)
    write_atomically(disk, f"{DIRECTORY}/{ERASE_ORDER_CHECKPOINT}", b"0\n2\n0\n7\n")
    log = opened(disk)
    assert not log.erase_orders.offsets
    assert log.erase_orders.is_dirty


@given(st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(1, 10), st.integers(0, 30), st.integers(1, 5))
def test_what_is_erased_is_shown(named: set[int], first: int, count: int, asked: int, asked_count: int) -> None:
    orders = PendingEraseOrders(DIRECTORY)
    orders.hidden_runs = tuple(runs_from(named))
    orders.show_runs([Run(first, first + count - 1)])
    left = named - set(range(first, first + count))
    assert orders.hides_offset_in(asked, asked + asked_count) == bool(left & set(range(asked, asked + asked_count)))


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_what_an_order_erased_is_shown(named: set[int], by_another: set[int], erased: set[int]) -> None:
    orders = PendingEraseOrders(DIRECTORY)
    orders.hidden_runs = tuple(sorted(runs_from(named) + runs_from(by_another)))
    orders.show_runs(runs_from(erased))
    hidden = [offset for offset in range(31) if orders.hides_offset_in(offset, offset + 1)]
    assert hidden == sorted((named | by_another) - erased)


def test_an_order_of_a_tiered_log_waits_for_remote_storage() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    send(log, ("a", "1"))
    order_offset = send_order(log, [Run(0, 0)])
    orders = log.erase_orders
    assert (orders.copy_end_offset, orders.kept_offset, orders.erased_end_offset) == (0, order_offset, 0)
    orders.note_carried_out_locally(order_offset)
    assert (orders.offsets, orders.tiered) == ([], [order_offset])
    assert (orders.copy_end_offset, orders.kept_offset) == (order_offset, order_offset)
    assert orders.erased_end_offset == order_offset + 1
    orders.searched.add(order_offset)
    assert (orders.copy_end_offset, orders.kept_offset) == (INT64_MAX, order_offset)
    log.close(NOW_MS, clean=True)
    log = opened(disk)
    assert (log.erase_orders.offsets, log.erase_orders.tiered) == ([order_offset], []), "a start looks again"
    log.erase_orders.note_carried_out_locally(order_offset)
    log.erase_orders.remove_order(order_offset)
    assert (log.erase_orders.kept_offset, log.erase_orders.erased_end_offset) == (INT64_MAX, 0)


def test_local_retention_keeps_an_order_that_remote_storage_waits_for() -> None:
    config = LogConfig(segment_bytes=200, is_tiered=True, local_retention_bytes=1)
    log = Log.open(SimulatedDisk(), DIRECTORY, config, now_ms=NOW_MS)
    for number in range(4):
        send(log, (f"k{number}", "v" * 100))
    order_offset = send_order(log, [Run(0, 0)])
    for number in range(4):
        send(log, (f"m{number}", "v" * 100))
    log.erase_orders.note_carried_out_locally(order_offset)
    log.tiered_end_offset = log.active.base_offset
    log.delete_old_segments(NOW_MS, log.end_offset)
    assert 0 < log.segments[0].base_offset <= order_offset
    log.erase_orders.remove_order(order_offset)
    log.delete_old_segments(NOW_MS, log.end_offset)
    assert log.segments[0].base_offset > order_offset
