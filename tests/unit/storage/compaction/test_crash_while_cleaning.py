"""The power is cut at every step of a cleaning, a swap and a checkpoint: what consumers see stays the same."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

import pytest

from moldau.protocol.compression import Codec
from moldau.storage.checkpoints.text_checkpoint import RECOVERY_POINT_CHECKPOINT, decode_offsets
from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.request import CleanerLimits
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.files.log_paths import CLEANED_SUFFIX, LOG_SUFFIX, offset_name
from moldau.storage.log.log import Log
from moldau.storage.log.segment_swap import SegmentCleaned
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import SimulatedCrash
from tests.unit.storage.compaction.histories import (
    NOW_MS,
    apply,
    checkpoint,
    clean_log,
    committed,
    end_transaction,
    request_of,
    send,
    stored,
)

pytestmark = pytest.mark.slow

ROOT = "/data"
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=150,
    cleanup_policy=("compact",),
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)
LIMITS = CleanerLimits(dedupe_buffer_size=24 * 12, io_buffer_size=500)
ROUND_TIMES_MS = (NOW_MS, NOW_MS + 500, NOW_MS + 1600, NOW_MS + 3200)

View = list[dict[bytes, bytes]]


def load(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    owner = LogDirectory.open(disk, ROOT, lambda _: None)
    return owner, owner.load_log("t", 0, CONFIG, NOW_MS, lambda _: None)


def write_history(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    """Keys over many segments, tombstones, transactions of both ends, idempotent batches."""
    owner, log = load(disk)
    for number in range(30):
        codec = Codec(number % 5)
        if number % 10 == 3:
            send(
                log,
                (f"k{number % 4}", "aborted"),
                ("only aborted", "x"),
                producer=(7, 0, number),
                is_transactional=True,
            )
        if number % 10 == 6:
            end_transaction(log, 7, 0, commits=number != 6)
        value = None if number % 6 == 5 else f"value {number:040}"
        send(log, (f"k{number % 7}", value), (f"k{number % 3}", "twice"), codec=codec, producer=(5, 0, 2 * number))
    end_transaction(log, 7, 0, commits=False)
    log.roll(NOW_MS)
    send(log, ("k1", "in the active segment"))
    log.flush(NOW_MS)
    checkpoint(owner)
    return owner, log


def view(log: Log) -> View:
    """The table that a consumer has at the end, for each offset from which it may read."""
    records = committed(log)
    return [apply({}, [each for each in records if each.offset >= offset]) for offset in range(log.end_offset)]


def rounds(disk: SimulatedDisk, owner: LogDirectory, log: Log) -> None:
    for now_ms in ROUND_TIMES_MS:
        clean_log(disk, log, now_ms, LIMITS, owner)
        points = decode_offsets(bytes(disk.peek_durable(f"{ROOT}/{RECOVERY_POINT_CHECKPOINT}")), ROOT)
        assert min(log.recovery_point, points[log.topic, log.partition]) >= log.active.base_offset


def assert_is_sound(disk: SimulatedDisk, log: Log, expected: View) -> None:
    assert log.end_offset == len(expected)
    assert view(log) == expected
    # The checkpoint is not ahead: nothing before it has a later record of its key before it as well.
    clean_segments = [each for each in committed(log) if each.offset < (log.first_dirty_offset or 0)]
    assert len({each.key for each in clean_segments}) == len(clean_segments)
    left = [name for name in disk.list_directory(log.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert not left
    for producer_id, sequence in ((5, 59),):
        assert log.producers.entries[producer_id].last_sequence == sequence


def steps() -> tuple[int, int, View]:
    disk = SimulatedDisk(seed=0)
    owner, log = write_history(disk)
    expected = view(log)
    before = disk.steps
    rounds(disk, owner, log)
    assert_is_sound(disk, log, expected)
    assert len(stored(log)) < 25 and log.first_dirty_offset == log.active.base_offset
    return before, disk.steps, expected


FIRST_STEP, LAST_STEP, EXPECTED = steps()


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_step_of_the_cleaning(seed: int) -> None:
    for step in range(FIRST_STEP + 1, LAST_STEP + 1):
        disk = SimulatedDisk(seed=f"{seed}/{step}")
        owner, log = write_history(disk)
        disk.crash_at_step = step
        with pytest.raises(SimulatedCrash):
            rounds(disk, owner, log)
        disk.crash()
        owner, log = load(disk)
        assert_is_sound(disk, log, EXPECTED)
        rounds(disk, owner, log)
        assert_is_sound(disk, log, EXPECTED)


def test_a_power_cut_while_a_start_finishes_a_swap() -> None:
    for step in range(FIRST_STEP + 1, LAST_STEP + 1):
        disk = SimulatedDisk(seed=step)
        owner, log = write_history(disk)
        disk.crash_at_step = step
        with pytest.raises(SimulatedCrash):
            rounds(disk, owner, log)
        disk.crash()
        for again in range(1, 100):
            disk.crash_at_step = disk.steps + again
            try:
                load(disk)
            except SimulatedCrash:
                disk.crash()
            else:
                break
        disk.crash_at_step = None
        disk.crash()
        owner, log = load(disk)
        assert_is_sound(disk, log, EXPECTED)


@pytest.mark.parametrize("events", [1, 9, 17, 25])
def test_a_power_cut_after_a_cleaning_that_was_given_up(events: int) -> None:
    """What the former cleaning has left lies before a later swap, and must not undo it."""
    for step in range(FIRST_STEP + 1 + events % 4, LAST_STEP + 1, 4):
        disk = SimulatedDisk(seed=step)
        owner, log = write_history(disk)
        given_up = clean_segments(disk, request_of(log, NOW_MS, LIMITS))
        for event in islice(given_up, events):
            if isinstance(event, SegmentCleaned):
                assert log.swap_cleaned(event, NOW_MS) is not None
        del given_up
        disk.crash_at_step = disk.steps + step - FIRST_STEP
        with suppress(SimulatedCrash):  # some of these cleanings have fewer steps left
            rounds(disk, owner, log)
        disk.crash()
        owner, log = load(disk)
        assert_is_sound(disk, log, EXPECTED)


def test_a_power_cut_beside_what_a_stopped_cleaning_has_left() -> None:
    """A `.cleaned` file at an offset where no later round begins a segment: beside it a start would undo later swaps,
    whose replaced segments are gone."""
    for step in range(FIRST_STEP + 1, LAST_STEP + 1, 3):
        disk = SimulatedDisk(seed=step)
        owner, log = write_history(disk)
        stale = disk.open(f"{log.directory}/{offset_name(1, LOG_SUFFIX)}{CLEANED_SUFFIX}", create=True)
        stale.append([b"half a batch"])
        stale.sync()
        stale.close()
        disk.sync_directory(log.directory)
        disk.crash_at_step = disk.steps + step - FIRST_STEP
        with pytest.raises(SimulatedCrash):
            rounds(disk, owner, log)
        disk.crash()
        owner, log = load(disk)
        assert_is_sound(disk, log, EXPECTED)


def test_a_clean_stop_between_rounds() -> None:
    disk = SimulatedDisk(seed=1)
    owner, log = write_history(disk)
    for now_ms in ROUND_TIMES_MS:
        clean_log(disk, log, now_ms, LIMITS, owner)
        first_dirty_offset = log.first_dirty_offset
        assert owner.close(NOW_MS, 1)
        owner, log = load(disk)
        assert log.first_dirty_offset == first_dirty_offset
        assert_is_sound(disk, log, EXPECTED)
