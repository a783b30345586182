"""A log that begins anew behind its remote part, and a loss of power at every step of that."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.log import Log
from moldau.storage.log.truncation import RemoteStart
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import encode_snapshot
from moldau.storage.producers.producer_state import ProducerBatch, ProducerEntry, ProducerStates
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import SimulatedCrash
from tests.unit.storage.stories import NOW_MS, append, batch, read_all

ROOT = "/data"
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=150, segment_index_bytes=4096, is_tiered=True)
PRODUCER = 7


def snapshot() -> bytes:
    states = ProducerStates(10**15)
    states.entries[PRODUCER] = entry = ProducerEntry(PRODUCER, 0)
    entry.note_batch(0, ProducerBatch(41, 41, 499, 0, NOW_MS))
    states.map_end_offset = 500
    return encode_snapshot(states)


EPOCHS = (EpochStart(2, 0), EpochStart(5, 80), EpochStart(6, 300))
START = RemoteStart(500, 90, EPOCHS, snapshot())


def opened(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    directory = LogDirectory.open(disk, ROOT, lambda _: None)
    return directory, directory.load_log("story", 0, CONFIG, NOW_MS, lambda _: None)


def is_before(log: Log) -> bool:
    """What was there, or nothing: the leader has moved away from either end."""
    return log.end_offset <= 10


def is_restarted(log: Log) -> bool:
    return (
        (log.local_start_offset, log.end_offset) == (500, 500)
        and log.log_start_offset in (0, 90)
        and log.epochs.entries[-2:]
        == list(EPOCHS[-2:] if log.log_start_offset == 0 else [EpochStart(5, 90), EPOCHS[2]])
        and log.producers.entries[PRODUCER].last_sequence == 41
        and log.recovery_point == 500
    )


def work(disk: SimulatedDisk) -> None:
    directory, log = opened(disk)
    for number in range(10):
        assert not log.append_as_leader(batch(f"old {number}", producer=(PRODUCER, 0, number)), 0, NOW_MS).error
    log.flush(NOW_MS)
    directory.begin_checkpoint(lambda _: None).write_files()
    log.lower_recovery_point(START.offset, empties=True)
    directory.begin_checkpoint(lambda _: None).write_files()
    log.start_after_remote(START, NOW_MS)
    assert is_restarted(log) and log.log_start_offset == 90
    for number in range(5):
        producer, offset = (PRODUCER, 0, 42 + number), 500 + number
        sent = batch(f"new {number}", producer=producer, base_offset=offset, leader_epoch=6)
        assert not log.append_as_follower(sent, 6, NOW_MS).error
    log.flush(NOW_MS)
    directory.begin_checkpoint(lambda _: None).write_files()


def test_it_goes_on_with_the_state_of_the_remote_part() -> None:
    disk = SimulatedDisk(seed=0)
    work(disk)
    disk.crash()
    _, log = opened(disk)
    assert (log.log_start_offset, log.local_start_offset, log.end_offset) == (90, 500, 505)
    assert sorted(read_all(log, start=500)) == list(range(500, 505))
    assert log.producers.entries[PRODUCER].last_sequence == 46
    assert log.epochs.entries == [EpochStart(5, 90), EpochStart(6, 300)]


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_every_step_leaves_the_log_before_or_after(seed: int) -> None:
    whole = SimulatedDisk(seed=0)
    work(whole)
    ends = set()
    for step in range(1, whole.steps + 1):
        disk = SimulatedDisk(seed=f"{seed}/{step}")
        disk.crash_at_step = step
        with pytest.raises(SimulatedCrash):
            work(disk)
        disk.crash()
        _, log = opened(disk)
        ends.add(log.end_offset)
        if log.end_offset > 10:
            assert log.local_start_offset == 500 and log.epochs.epoch_of(499) == 6, (step, log.epochs.entries)
            assert log.producers.entries[PRODUCER].last_sequence == 41 + log.end_offset - 500, step
            assert log.recovery_point >= 500
    assert {0, 10, 500, 505} <= ends


def test_local_retention_makes_the_epochs_durable_first() -> None:
    disk = SimulatedDisk(seed=1)
    directory, log = opened(disk)
    for number in range(12):
        append(log, f"value {number}", leader_epoch=number // 4)
    directory.begin_checkpoint(lambda _: None).write_files()
    log.config = replace(CONFIG, local_retention_bytes=0)
    log.tiered_end_offset = log.end_offset
    for path in log.delete_old_segments(NOW_MS, log.end_offset):
        disk.unlink(path)
    first = log.local_start_offset
    assert first > 4
    disk.sync_directory(log.directory)
    for segment in log.segments:
        segment.file().sync()
    disk.crash()
    _, again = opened(disk)
    assert again.local_start_offset == first
    assert [again.epochs.epoch_of(offset) for offset in range(first)] == [offset // 4 for offset in range(first)]


def test_a_full_disk_puts_local_retention_off_and_ends_no_log() -> None:
    """Retention is what makes room there, but it must not lose the epochs of what it deletes."""
    disk = SimulatedDisk(seed=1)
    _, log = opened(disk)
    for number in range(12):
        append(log, f"value {number}", leader_epoch=number // 4)
    assert log.epochs.is_dirty
    log.config = replace(CONFIG, local_retention_bytes=0)
    log.tiered_end_offset = log.end_offset
    bases = [segment.base_offset for segment in log.segments]
    disk.faults.capacity_bytes = disk.used_bytes
    with pytest.raises(OSError, match="No space"):
        log.delete_old_segments(NOW_MS, log.end_offset)
    assert log.failure is None and [segment.base_offset for segment in log.segments] == bases
    disk.faults.capacity_bytes = 1 << 30
    assert log.delete_old_segments(NOW_MS, log.end_offset) and not log.epochs.is_dirty


def test_local_retention_waits_for_a_flush_that_writes_the_epochs() -> None:
    disk = SimulatedDisk(seed=1)
    _, log = opened(disk)
    for number in range(12):
        append(log, f"value {number}", leader_epoch=number // 4)
    log.config = replace(CONFIG, local_retention_bytes=0)
    log.tiered_end_offset = log.end_offset
    work = log.pending_flush()
    assert work is not None and log.delete_old_segments(NOW_MS, log.end_offset) == []
    work.sync_files()
    log.finish_flush(work, NOW_MS)
    assert log.delete_old_segments(NOW_MS, log.end_offset)


@pytest.mark.parametrize("room", range(0, 200, 25))
def test_a_full_disk_lets_the_log_begin_behind_its_remote_part_later(room: int) -> None:
    disk = SimulatedDisk(seed=1)
    directory, log = opened(disk)
    disk.faults.capacity_bytes = disk.used_bytes + room
    try:
        log.start_after_remote(START, NOW_MS)
    except OSError as full:
        assert full.errno == errno.ENOSPC and log.failure is None
        assert (log.log_start_offset, log.end_offset, log.epochs.entries) == (0, 0, [])
        disk.faults.capacity_bytes = 1 << 30
        log.start_after_remote(START, NOW_MS)
    assert is_restarted(log)
    disk.faults.capacity_bytes = 1 << 30
    directory.begin_checkpoint(lambda _: None).write_files()
    disk.end_process()
    assert is_restarted(opened(disk)[1])
