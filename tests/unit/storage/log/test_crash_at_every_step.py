"""The power is cut at every single step of a workload: what was synced is there, and nothing is torn or in disorder."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.segment import segment as segment_files
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import SimulatedCrash
from tests.unit.storage.stories import NOW_MS, append, batch, read_all

pytestmark = pytest.mark.slow

ROOT = "/data"
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_bytes=2500, segment_index_bytes=4096)
PRODUCER = 7


@dataclass
class Promise:
    """What the workload was told before the power went."""

    taken: list[str] = field(default_factory=list)
    synced_end_offset: int = 0
    log_start_offset: int = 0
    is_clean: bool = False


def open_directory(disk: SimulatedDisk, reports: list[str]) -> tuple[LogDirectory, Log]:
    directory = LogDirectory.open(disk, ROOT, reports.append)
    log = directory.load_log("story", 0, CONFIG, NOW_MS, reports.append)
    return directory, log


def send(log: Log, promise: Promise) -> None:
    sequence = len(promise.taken)
    value = f"value {sequence}"
    result = log.append_as_leader(batch(value, producer=(PRODUCER, 0, sequence)), sequence // 10, NOW_MS)
    assert result.error == 0 and result.base_offset == sequence, result
    promise.taken.append(value)


def work(disk: SimulatedDisk, promise: Promise) -> None:
    """Appends over many segments, flushes, checkpoints, retention, a clean end."""
    directory, log = open_directory(disk, [])
    log.assign_topic_id(TOPIC_ID)
    for number in range(36):
        send(log, promise)
        if number % 7 == 6:
            log.flush(NOW_MS)
            promise.synced_end_offset = log.end_offset
        if number % 11 == 10:
            directory.begin_checkpoint({("story", 0): log.end_offset}.get).write_files()
        if number % 13 == 12:
            promise.log_start_offset = log.segments[1].base_offset
            deleted = log.delete_old_segments(NOW_MS, log.end_offset)
            promise.log_start_offset = log.log_start_offset
            for path in deleted:
                disk.unlink(path)
    promise.is_clean = directory.close(NOW_MS, broker_epoch=5)
    promise.synced_end_offset = len(promise.taken)


def steps_of_the_workload() -> int:
    disk = SimulatedDisk(seed=0)
    work(disk, Promise())
    return disk.steps


STEPS = steps_of_the_workload()


@pytest.mark.parametrize("seed", range(3))
def test_recovery_after_a_power_cut_at_every_step(seed: int) -> None:
    for step in range(1, STEPS + 1):
        disk = SimulatedDisk(seed=f"{seed}/{step}")
        disk.crash_at_step = step
        promise = Promise()
        with pytest.raises(SimulatedCrash):
            work(disk, promise)
        disk.crash()
        check_recovered(disk, promise, f"seed {seed}, step {step} of {STEPS}")


def check_recovered(disk: SimulatedDisk, promise: Promise, where: str) -> None:
    reports: list[str] = []
    directory, log = open_directory(disk, reports)
    assert promise.synced_end_offset <= log.end_offset <= len(promise.taken) + 1, (where, reports)
    assert log.log_start_offset <= max(promise.log_start_offset, log.end_offset), where
    records = read_all(log)
    assert sorted(records) == list(range(log.log_start_offset, log.end_offset)), (where, reports)
    # The batch under way when the power went may be there as well: the client repeats it and is answered as before.
    assert all(value == f"value {offset}" for offset, value in records.items()), where
    assert log.topic_id in (TOPIC_ID, None), where
    assert [entry.start_offset for entry in log.epochs.entries] == sorted({e.start_offset for e in log.epochs.entries})
    for offset in range(max(log.log_start_offset, log.end_offset - 5), log.end_offset):
        assert log.epochs.epoch_of(offset) == offset // 10, (where, log.epochs.entries)
    if records:
        last = log.end_offset - 1
        again = log.append_as_leader(batch(f"value {last}", producer=(PRODUCER, 0, last)), 3, NOW_MS)
        assert again.is_duplicate and again.base_offset == last, (where, again)
    after_crash = Promise(taken=[f"value {offset}" for offset in range(log.end_offset)])
    send(log, after_crash)
    assert directory.close(NOW_MS, broker_epoch=6), where
    directory, log = open_directory(disk, reports)
    assert directory.previous_run.clean_broker_epoch == 6 and log.end_offset == len(after_crash.taken), where
    assert read_all(log) == {**records, log.end_offset - 1: after_crash.taken[-1]}, where


def diverge(disk: SimulatedDisk, promise: Promise) -> None:
    """A replica whose tail another leader never had: truncated, then filled with what that leader has."""
    directory, log = open_directory(disk, [])
    for number in range(30):
        append(log, f"old {number}", leader_epoch=1)
    log.flush(NOW_MS)
    directory.begin_checkpoint().write_files()
    promise.synced_end_offset = DIVERGENCE
    log.lower_recovery_point(DIVERGENCE)
    directory.begin_checkpoint().write_files()
    log.truncate_to(DIVERGENCE, NOW_MS)
    for number in range(DIVERGENCE, 40):
        append(log, f"new {number}", leader_epoch=2)
        if number % 9 == 0:
            log.flush(NOW_MS)
            promise.taken = [f"new {offset}" for offset in range(DIVERGENCE, number + 1)]
            promise.synced_end_offset = number + 1
            directory.begin_checkpoint().write_files()


DIVERGENCE = 13


@pytest.mark.parametrize("cut_later_size_min", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_around_a_truncation_never_mixes_two_histories(
    seed: int, cut_later_size_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "CUT_LATER_SIZE_MIN", cut_later_size_min)
    disk = SimulatedDisk()
    diverge(disk, Promise())
    old = {offset: f"old {offset}" for offset in range(30)}
    new = {offset: f"{'old' if offset < DIVERGENCE else 'new'} {offset}" for offset in range(40)}
    for step in range(30, disk.steps + 1):
        disk = SimulatedDisk(seed=f"{seed}/{step}")
        disk.crash_at_step = step
        promise = Promise()
        with pytest.raises(SimulatedCrash):
            diverge(disk, promise)
        disk.crash()
        reports: list[str] = []
        _, log = open_directory(disk, reports)
        records = read_all(log)
        assert sorted(records) == list(range(log.end_offset)) and log.end_offset >= promise.synced_end_offset
        of_old = {offset: value for offset, value in old.items() if offset < log.end_offset}
        of_new = {offset: value for offset, value in new.items() if offset < log.end_offset}
        assert records in (of_old, of_new), (seed, step, reports)
        if promise.taken:
            assert records == of_new, (seed, step, reports)


def test_a_clean_end_needs_no_recovery() -> None:
    disk, promise = SimulatedDisk(seed=1), Promise()
    work(disk, promise)
    assert promise.is_clean
    disk.crash()  # everything was durable: the power may go
    reports: list[str] = []
    directory, log = open_directory(disk, reports)
    assert directory.previous_run.clean_broker_epoch == 5 and log.end_offset == len(promise.taken) and not reports
    assert log.topic_id == TOPIC_ID
