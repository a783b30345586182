"""A tiered log: local retention deletes what is copied, and leaves the start of the log of the partition."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import SNAPSHOT_ENTRY, SNAPSHOT_HEADER, encode_snapshot
from tests.support.segments import EPOCH, mixed_batches

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1_000, is_tiered=True, local_retention_bytes=0)


def decode_entries(snapshot: bytes) -> list[tuple[int, ...]]:
    return list(SNAPSHOT_ENTRY.iter_unpack(snapshot[SNAPSHOT_HEADER.size :]))


def written(tmp_path: Path, config: LogConfig = CONFIG) -> Log:
    log = Log.open(LocalFiles(), f"{tmp_path}/t-0", config, now_ms=0)
    for batch in mixed_batches(200, 5):
        assert not log.append_as_follower(batch, EPOCH, 0).error
    assert len(log.segments) > 4
    return log


def test_nothing_is_deleted_that_is_not_copied(tmp_path: Path) -> None:
    log = written(tmp_path)
    assert log.delete_old_segments(10**15, log.end_offset) == []


def test_what_is_copied_is_deleted_and_the_log_keeps_its_start(tmp_path: Path) -> None:
    log = written(tmp_path)
    third, epochs = log.segments[2].base_offset, list(log.epochs.entries)
    log.tiered_end_offset = third + 1
    assert log.delete_old_segments(0, log.end_offset)
    assert (log.log_start_offset, log.local_start_offset) == (0, third)
    assert log.epochs.entries == epochs
    moved = log.read(third - 1, 1000, end_offset=log.end_offset, at_least_one=True)
    assert moved is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert not isinstance(log.read(third, 1000, end_offset=log.end_offset, at_least_one=True), ErrorCode)


@pytest.mark.parametrize(("kept_ms", "kept_bytes"), [(1000, -1), (-1, 0)])
def test_the_active_segment_is_rolled_when_local_retention_is_due(
    tmp_path: Path, kept_ms: int, kept_bytes: int
) -> None:
    """Only a rolled segment is copied, and only a copy expires by retention.ms."""
    log = written(tmp_path, replace(CONFIG, local_retention_ms=kept_ms, local_retention_bytes=kept_bytes))
    active, late_ms, end_offset = log.active, 10**15, log.end_offset
    log.tiered_end_offset = active.base_offset - 1
    log.delete_old_segments(late_ms, end_offset)
    assert log.active is active, "an earlier segment stays"
    log.tiered_end_offset = active.base_offset
    log.delete_old_segments(late_ms, end_offset - 1)
    assert log.segments == [active], "not all of it is committed"
    assert log.delete_old_segments(late_ms, end_offset) == []
    assert log.segments == [active, log.active]
    assert log.active.base_offset == end_offset
    assert log.delete_old_segments(late_ms, end_offset) == [], "not copied yet"
    log.tiered_end_offset = end_offset
    assert log.delete_old_segments(late_ms, end_offset)
    assert (log.log_start_offset, log.local_start_offset, log.size) == (0, end_offset, 0)


@pytest.mark.parametrize(("kept_ms", "kept_bytes"), [(10**16, -1), (-1, 1)])
def test_an_active_segment_that_local_retention_keeps_is_not_rolled(
    tmp_path: Path, kept_ms: int, kept_bytes: int
) -> None:
    """DeleteRecords alone rolls none either, as in Apache Kafka."""
    log = written(tmp_path, replace(CONFIG, local_retention_ms=kept_ms, local_retention_bytes=kept_bytes))
    active = log.active
    log.advance_log_start(log.end_offset, log.end_offset)
    log.delete_old_segments(10**15, log.end_offset)
    assert log.segments == [active]


def test_a_timestamp_in_the_future_keeps_no_local_file_of_a_copied_segment(tmp_path: Path) -> None:
    config = replace(CONFIG, local_retention_bytes=-1, local_retention_ms=1_000)
    log = written(tmp_path, config)
    changed_ms = LocalFiles().modified_ms(log.segments[0].path(".log"))
    for segment in log.segments[:-1]:
        os.utime(segment.path(".log"), ns=(0, changed_ms * 1_000_000))
        segment.load_timestamps()
        segment.max_timestamp = changed_ms + 10**10
    log.tiered_end_offset = log.active.base_offset - 1
    log.delete_old_segments(changed_ms + 1_000, log.end_offset)
    assert log.segments[0].base_offset == 0, "not before the file is old enough"
    log.delete_old_segments(changed_ms + 1_001, log.end_offset)
    assert log.segments[0].base_offset == log.segments[-2].base_offset, "the one that is not copied whole stays"


def test_local_retention_keeps_what_it_allows(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.config = replace(CONFIG, local_retention_bytes=log.size - log.segments[0].size)
    log.tiered_end_offset = log.end_offset
    second = log.segments[1].base_offset
    assert log.delete_old_segments(0, log.end_offset)
    assert log.local_start_offset == second


@pytest.mark.parametrize("back", [0, 1, 7])
def test_a_truncation_of_all_local_files_leaves_the_remote_part(tmp_path: Path, back: int) -> None:
    """Otherwise this replica, as a later leader, would delete the remote segments before its log start offset."""
    log = written(tmp_path)
    first = log.active.base_offset
    log.tiered_end_offset = first
    log.delete_old_segments(0, log.end_offset)
    assert log.local_start_offset == first
    epochs, snapshot = list(log.epochs.entries), LocalFiles().read(log.snapshots.path(first))
    end = first - back
    log.lower_recovery_point(end)
    assert log.truncate_to(end, 0)
    killed = Log.open(LocalFiles(), log.directory, CONFIG, recovery_point=log.recovery_point, now_ms=0)
    for each in (log, killed):
        assert (each.log_start_offset, each.local_start_offset, each.end_offset) == (0, end, end)
        assert each.epochs.entries == epochs and each.snapshots.offsets == ([first] if not back else [])
        moved = each.read(end - 1, 1000, end_offset=end, at_least_one=True)
        assert moved is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        if not back:
            assert sorted(decode_entries(encode_snapshot(each.producers))) == sorted(decode_entries(snapshot))


def test_a_truncation_to_the_log_start_offset_leaves_nothing(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.advance_log_start(log.active.base_offset, log.end_offset)
    log.delete_old_segments(0, log.end_offset)
    start = log.log_start_offset
    assert log.truncate_to(start, 0)
    assert (log.log_start_offset, log.end_offset, log.epochs.entries, log.snapshots.offsets) == (start, start, [], [])


def test_delete_records_deletes_segments_that_have_no_copy(tmp_path: Path) -> None:
    log = written(tmp_path)
    third = log.segments[2].base_offset
    assert log.advance_log_start(third, log.end_offset) is ErrorCode.NONE
    assert log.delete_old_segments(0, log.end_offset)
    assert (log.log_start_offset, log.segments[0].base_offset) == (third, third)


def test_a_start_finds_both_starts_again(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.tiered_end_offset = third = log.segments[2].base_offset
    log.delete_old_segments(0, log.end_offset)
    log.close(0, clean=True)
    opened = Log.open(LocalFiles(), f"{tmp_path}/t-0", CONFIG, clean_shutdown=True, log_start_offset=7, now_ms=0)
    assert (opened.log_start_offset, opened.local_start_offset) == (7, third)


def test_a_log_that_is_tiered_no_more_begins_where_its_files_do(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.tiered_end_offset = third = log.segments[2].base_offset
    log.delete_old_segments(0, log.end_offset)
    log.config = replace(CONFIG, is_tiered=False, retention_ms=-1)
    assert log.read(0, 1000, end_offset=log.end_offset, at_least_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_old_segments(0, log.end_offset) == []
    assert log.log_start_offset == third


def test_where_nothing_is_copied_any_more_retention_deletes_as_of_other_logs(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.config = replace(CONFIG, remote_log_copy_disable=True, retention_ms=-1, retention_bytes=log.active.size)
    assert log.delete_old_segments(0, log.end_offset)
    assert log.segments == [log.active]
    assert log.log_start_offset == log.active.base_offset
