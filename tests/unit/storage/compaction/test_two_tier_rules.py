"""What stays of a log while remote segments lag behind: tombstones, markers, and the markers of transactions whose data
is only in remote storage."""

from __future__ import annotations

from dataclasses import replace

from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.request import cleaning_request, producers_open_at_start
from moldau.storage.log.log import Log
from moldau.storage.log_config import INT64_MAX
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import (
    COMPACTED,
    LIMITS,
    NOW_MS,
    SALT,
    drive,
    end_transaction,
    offsets,
    part_of,
    send,
    stored,
)

TIERED = replace(COMPACTED, is_tiered=True, local_retention_bytes=0, retention_ms=-1)


def opened(disk: SimulatedDisk) -> Log:
    return Log.open(disk, "/data/t-0", TIERED, now_ms=NOW_MS)


def clean_again(disk: SimulatedDisk, log: Log, now_ms: int, tombstones_end_offset: int) -> None:
    """A round over more dirty data."""
    send(log, (f"filler {log.end_offset}", "v"), timestamp=NOW_MS)
    log.roll(now_ms)
    log.flush(now_ms)
    request = cleaning_request(log, part_of(log, now_ms), LIMITS, SALT, now_ms, tombstones_end_offset)
    drive(disk, log, request, clean_segments(disk, request), now_ms)


def test_a_tombstone_past_what_remote_segments_were_cleaned_against_gets_no_horizon() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    first, second = send(log, ("a", None)), send(log, ("b", None))
    clean_again(disk, log, NOW_MS, second)
    horizons = {each.header.base_offset: each.header.delete_horizon_ms for each in stored(log)}
    assert horizons[first] == NOW_MS + TIERED.delete_retention_ms
    assert horizons[second] is None
    clean_again(disk, log, NOW_MS + 5000, second)
    assert first not in offsets(log) and second in offsets(log)


def test_a_tombstone_whose_horizon_passed_before_the_log_was_tiered_stays_as_well() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    offset = send(log, ("a", None))
    clean_again(disk, log, NOW_MS, INT64_MAX)
    clean_again(disk, log, NOW_MS + 5000, 0)
    assert offset in offsets(log)
    clean_again(disk, log, NOW_MS + 5000, INT64_MAX)
    assert offset not in offsets(log)


def test_a_marker_stays_with_its_entry_while_remote_segments_may_have_aborted_data() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    send(log, ("a", "v"), producer=(7, 0, 0), is_transactional=True)
    marker = end_transaction(log, 7, 0, commits=False)
    send(log, ("b", "v"), producer=(7, 0, 1), is_transactional=True)  # or the first batch stays for its sequence
    end_transaction(log, 7, 0, commits=True)
    for passed_ms in (0, 5000, 10_000):
        clean_again(disk, log, NOW_MS + passed_ms, 0)
        assert marker in offsets(log)
        assert [each.last_offset for each in log.aborted_transactions(0, log.end_offset)] == [marker]
    for passed_ms in (20_000, 40_000, 60_000):
        clean_again(disk, log, NOW_MS + passed_ms, INT64_MAX)
    assert marker not in offsets(log)
    assert log.aborted_transactions(0, log.end_offset) == []


def test_the_marker_of_a_transaction_that_was_open_where_the_local_log_begins_stays() -> None:
    disk = SimulatedDisk()
    log = opened(disk)
    send(log, ("a", "v"), producer=(7, 0, 0), is_transactional=True)
    log.roll(NOW_MS)
    marker = end_transaction(log, 7, 0, commits=True)
    log.roll(NOW_MS)
    log.tiered_end_offset = marker
    for path in log.delete_old_segments(NOW_MS, log.end_offset):
        disk.unlink(path)
    assert log.local_start_offset == marker and producers_open_at_start(log) == {7}
    for passed_ms in (0, 5000, 10_000):
        clean_again(disk, log, NOW_MS + passed_ms, INT64_MAX)
    log.log_start_offset = log.local_start_offset
    assert marker in offsets(log), "a follower that begins here has the transaction open"
