"""Truncation, retention and deletion of records."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import decode_snapshot
from moldau.storage.segment import segment as segment_files
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import SimulatedCrash
from tests.unit.storage.stories import NOW_MS, SMALL, append, batch, open_log, read_all

COUNT = 60


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"))
    for number in range(COUNT):
        append(log, f"value {number}", leader_epoch=number // 10, timestamp=NOW_MS + number)
    return log


def values(start: int, end: int) -> dict[int, str]:
    return {number: f"value {number}" for number in range(start, end)}


@pytest.mark.parametrize("offset", [0, 1, 11, 12, 35, 59])
def test_after_a_truncation_the_log_is_what_it_was_then(log: Log, offset: int) -> None:
    assert log.truncate_to(offset, NOW_MS)
    assert log.end_offset == offset and read_all(log) == values(0, offset)
    assert log.epochs.latest_epoch == ((offset - 1) // 10 if offset else -1)
    assert log.offset_for_timestamp(NOW_MS + offset) is None
    append(log, "other", leader_epoch=9)
    again = open_log(LocalFiles(), log.directory)
    assert read_all(again) == {**values(0, offset), offset: "other"}


def test_truncating_at_or_past_the_end_changes_nothing(log: Log) -> None:
    assert not log.truncate_to(COUNT, NOW_MS) and not log.truncate_to(COUNT + 5, NOW_MS)
    assert read_all(log) == values(0, COUNT)


def test_a_batch_that_spans_the_offset_goes_whole(tmp_path: Path) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"))
    append(log, "a")
    append(log, "b", "c", "d")
    assert log.truncate_to(2, NOW_MS)
    assert log.end_offset == 1 and read_all(log) == {0: "a"}


def test_the_recovery_point_before_a_truncation_is_no_later_than_the_end_after_it(tmp_path: Path) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"))
    append(log, "a")
    append(log, "b", "c", "d")
    log.flush(NOW_MS)
    log.lower_recovery_point(2)
    assert log.recovery_point == 1
    assert log.truncate_to(2, NOW_MS) and log.end_offset == 1


def test_producers_are_as_they_were_at_the_truncation(tmp_path: Path) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"))
    for sequence in range(40):
        log.append_as_leader(batch("x", producer=(7, 0, sequence)), 0, NOW_MS)
    log.truncate_to(25, NOW_MS)
    assert log.append_as_leader(batch("x", producer=(7, 0, 24)), 0, NOW_MS).is_duplicate
    assert log.append_as_leader(batch("x", producer=(7, 0, 25)), 0, NOW_MS).base_offset == 25


def test_no_producer_is_remembered_by_a_damaged_batch_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), LogConfig())
    for sequence in range(40):
        log.append_as_leader(batch("x", producer=(7, 0, sequence)), 0, NOW_MS)
    place = log.active.find_batch(24)
    assert place is not None
    path = Path(log.active.path(".log"))
    damaged = bytearray(path.read_bytes())
    damaged[place.position + 46] ^= 1  # in the producer's id
    path.write_bytes(damaged)
    with pytest.raises(MalformedMessage, match="checksum mismatch"):
        log.truncate_to(25, NOW_MS)


def test_a_log_begins_anew_at_an_offset(log: Log) -> None:
    log.truncate_fully_and_start_at(1000, NOW_MS)
    assert (log.log_start_offset, log.end_offset, log.size, log.epochs.entries) == (1000, 1000, 0, [])
    assert append(log, "first") == 1000
    assert sorted(name for name in LocalFiles().list_directory(log.directory) if name.endswith(".log")) == [
        f"{1000:020d}.log"
    ]


def test_a_log_that_began_anew_is_of_no_epoch_of_before_at_the_next_start(log: Log) -> None:
    log.flush(NOW_MS)
    log.truncate_fully_and_start_at(1000, NOW_MS)
    killed = Log.open(LocalFiles(), log.directory, SMALL, recovery_point=1000, log_start_offset=1000, now_ms=NOW_MS)
    assert (killed.end_offset, killed.epochs.entries) == (1000, [])


def test_a_flush_under_way_does_not_vouch_for_what_replaced_its_bytes(log: Log) -> None:
    work = log.pending_flush()
    assert work is not None
    work.sync_files()
    log.truncate_to(30, NOW_MS)
    append(log, "not synced")
    log.finish_flush(work, NOW_MS)
    assert log.recovery_point == 30


def test_a_flush_that_ends_while_a_truncation_is_prepared_does_not_undo_the_preparation(log: Log) -> None:
    """A checkpoint with the recovery point past the new end would make a start after a crash report damage."""
    work = log.pending_flush()
    assert work is not None
    work.sync_files()
    log.lower_recovery_point(30)
    log.finish_flush(work, NOW_MS)
    assert log.recovery_point == 30
    log.flush(NOW_MS)
    assert (log.recovery_point, log.synced_end_offset) == (30, COUNT)
    log.truncate_to(30, NOW_MS)
    append(log, "new")
    log.flush(NOW_MS)
    assert log.recovery_point == 31


@pytest.mark.parametrize("offset", [30, COUNT])
def test_after_a_truncation_that_removed_nothing_the_recovery_point_moves_on(log: Log, offset: int) -> None:
    log.lower_recovery_point(offset)
    if offset == COUNT:
        assert not log.truncate_to(offset, NOW_MS)
    else:
        log.end_truncation()  # Another leader was elected in between.
    append(log, "new")
    log.flush(NOW_MS)
    assert log.recovery_point == COUNT + 1 and log.start_offset_to_checkpoint == 0


@pytest.mark.parametrize("cut_later_size_min", [0, 1 << 20])
def test_a_kill_within_a_truncation_leaves_a_log_without_a_gap(
    cut_later_size_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap counts as damage: the replica would be set aside, and fetched again."""
    monkeypatch.setattr(segment_files, "CUT_LATER_SIZE_MIN", cut_later_size_min)
    ends = set()
    for step in range(1, 40):
        disk = SimulatedDisk(seed=step)
        disk.make_directories("/d")
        log = open_log(disk, "/d/t-0", SMALL)
        for number in range(COUNT):
            append(log, f"value {number}")
        log.flush(NOW_MS)
        log.lower_recovery_point(25)
        recovery_point = log.recovery_point
        disk.crash_at_step = disk.steps + step
        with suppress(SimulatedCrash):
            log.truncate_to(25, NOW_MS)
        disk.end_process()
        disk.power_on()
        again = Log.open(
            disk, "/d/t-0", SMALL, recovery_point=recovery_point, now_ms=NOW_MS, may_have_lost_writes=False
        )
        assert read_all(again) == values(0, again.end_offset), step
        ends.add(again.end_offset)
    assert {25, COUNT} <= ends


@pytest.mark.parametrize("offset", [25, COUNT, COUNT + 7])
def test_a_kill_while_a_log_is_emptied_leaves_a_log_that_can_be_opened(offset: int) -> None:
    """The batches that were removed are no loss, although they were flushed and committed."""
    ends = set()
    for step in range(1, 40):
        disk = SimulatedDisk(seed=step)
        disk.make_directories("/d")
        log = open_log(disk, "/d/t-0", SMALL)
        for number in range(COUNT):
            append(log, f"value {number}")
        log.flush(NOW_MS)
        log.lower_recovery_point(offset, empties=True)
        recovery_point = log.recovery_point
        disk.crash_at_step = disk.steps + step
        with suppress(SimulatedCrash):
            log.truncate_fully_and_start_at(offset, NOW_MS)
        disk.end_process()
        disk.power_on()
        again = Log.open(
            disk,
            "/d/t-0",
            SMALL,
            recovery_point=recovery_point,
            now_ms=NOW_MS,
            high_watermark=COUNT,
            may_have_lost_writes=False,
        )
        assert read_all(again) == (values(0, again.end_offset) if again.log_start_offset == 0 else {}), step
        assert len(again.epochs.entries) == (again.log_start_offset < again.end_offset), step
        ends.add(again.end_offset)
    assert {0, offset, COUNT} <= ends


def test_deleted_records_are_not_read_and_their_segments_go_later(log: Log) -> None:
    assert log.advance_log_start(35, 40) is ErrorCode.NONE
    assert log.advance_log_start(41, 40) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.advance_log_start(3, 40) is ErrorCode.NONE, "going back changes nothing"
    assert log.log_start_offset == 35 and read_all(log) == values(35, COUNT)
    assert log.epochs.entries[0] == (3, 35)
    paths = log.delete_old_segments(NOW_MS, COUNT)
    assert log.segments[0].base_offset <= 35 < log.segments[1].base_offset
    assert log.log_start_offset == 35 and paths and all(path.endswith(".deleted") for path in paths)
    fs = LocalFiles()
    assert all(fs.exists(path) for path in paths)
    again = Log.open(fs, log.directory, SMALL, log_start_offset=35, now_ms=NOW_MS)
    assert read_all(again) == values(35, COUNT) and not any(fs.exists(path) for path in paths)


def with_config(log: Log, config: LogConfig) -> Log:
    log.config = config
    return log


def test_retention_by_size_keeps_at_least_that_much(log: Log) -> None:
    keep = log.size // 2
    with_config(log, LogConfig(segment_bytes=900, retention_bytes=keep, retention_ms=-1)).delete_old_segments(
        NOW_MS, COUNT
    )
    assert keep <= log.size < keep + 900
    assert read_all(log) == values(log.log_start_offset, COUNT) and log.log_start_offset == log.segments[0].base_offset


def test_retention_by_time_looks_at_the_newest_record_of_a_segment(log: Log) -> None:
    config = LogConfig(segment_bytes=900, retention_ms=1000)
    second = log.segments[1]
    newest_of_second = second.largest_timestamp()
    with_config(log, config).delete_old_segments(newest_of_second + 1000, COUNT)
    assert log.segments[0] is second
    log.delete_old_segments(newest_of_second + 1001, COUNT)
    assert log.segments[0] is not second


def test_snapshots_below_the_first_segment_go_with_the_segments_before_it(log: Log) -> None:
    snapshots = log.snapshots
    middle = log.segments[1].base_offset + 1
    LocalFiles().open(snapshots.path(middle), create=True).close()
    snapshots.offsets.append(middle)
    snapshots.offsets.sort()
    with_config(log, LogConfig(segment_bytes=900, retention_ms=1000)).delete_old_segments(
        log.segments[1].largest_timestamp() + 1001, COUNT
    )
    assert min(snapshots.offsets) >= log.segments[0].base_offset > middle
    assert not LocalFiles().exists(snapshots.path(middle))


@pytest.mark.parametrize("is_missing", [True, False])
def test_retention_deletes_a_segment_whose_producer_snapshot_is_missing_or_damaged(is_missing: bool) -> None:
    """Another tool may have removed the file, or a truncation that restored the producers, because it was damaged."""
    disk = SimulatedDisk()
    disk.make_directories("/d")
    log = open_log(disk, "/d/t-0", LogConfig(segment_bytes=900, retention_ms=1000))
    for sequence in range(COUNT):
        log.append_as_leader(batch("x", producer=(7, 0, sequence), timestamp=NOW_MS + sequence), 0, NOW_MS)
    second, third = (segment.base_offset for segment in log.segments[1:3])
    if is_missing:
        disk.unlink(log.snapshots.path(second))
    else:
        file = disk.open(log.snapshots.path(second))
        file.truncate(file.size() - 1)
        file.close()
        for _ in log.prepare_producers(third - 1, NOW_MS):
            pass
        log.truncate_to(third - 1, NOW_MS)
        assert log.append_as_leader(batch("x", producer=(7, 0, third - 1)), 0, NOW_MS).base_offset == third - 1
    assert log.delete_old_segments(NOW_MS + 10**9, log.end_offset)
    assert log.failure is None and log.log_start_offset == log.end_offset


def test_retention_may_empty_a_log_and_it_goes_on_at_its_end(log: Log) -> None:
    with_config(log, LogConfig(segment_bytes=900, retention_ms=0)).delete_old_segments(NOW_MS + 10**9, COUNT)
    assert (log.log_start_offset, log.end_offset, len(log.segments), log.size) == (COUNT, COUNT, 1, 0)
    assert append(log, "next") == COUNT
    assert log.delete_old_segments(NOW_MS, COUNT) == [], "what is not replicated stays"


def test_retention_never_passes_the_high_watermark(log: Log) -> None:
    high_watermark = log.segments[2].base_offset
    with_config(log, LogConfig(retention_ms=0)).delete_old_segments(NOW_MS + 10**9, high_watermark)
    assert log.segments[0].base_offset == high_watermark
    assert log.delete_old_segments(NOW_MS + 10**9, high_watermark + 1) == []


def test_a_compacted_topic_is_not_cut_by_retention(log: Log) -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    assert with_config(log, config).delete_old_segments(NOW_MS + 10**9, COUNT) == []


def test_a_reader_under_way_survives_the_deletion_of_its_segment(log: Log) -> None:
    fs = LocalFiles()
    read = log.read(0, 1 << 20, end_offset=COUNT, at_least_one=True)
    assert not isinstance(read, ErrorCode) and read.slice is not None
    paths = with_config(log, LogConfig(retention_ms=0)).delete_old_segments(NOW_MS + 10**9, COUNT)
    for path in paths:
        fs.unlink(path)
    assert len(read.slice.file.pread(read.slice.size, read.slice.position)) == read.slice.size


def test_a_retention_check_gives_back_the_descriptors_of_rolled_segments(log: Log) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("only Linux lists the descriptors of a process")

    def held() -> int:
        return sum(str(link.resolve()).startswith(log.directory) for link in descriptors.iterdir())

    read_all(log)
    assert held() > 3
    log.delete_old_segments(NOW_MS, COUNT)
    assert held() <= 3
    assert read_all(log) == values(0, COUNT)


def test_a_crash_while_retention_renames_loses_no_later_record() -> None:
    for step in range(1, 60):
        disk = SimulatedDisk(seed=step)
        disk.make_directories("/d")
        disk.sync_directory("/")
        log = open_log(disk, "/d/t-0", LogConfig(segment_bytes=900, retention_ms=0))
        for number in range(30):
            append(log, f"value {number}")
        log.flush(NOW_MS)
        disk.crash_at_step = disk.steps + step
        try:
            log.delete_old_segments(NOW_MS + 10**9, 20)
            append(log, "value 30")
            log.flush(NOW_MS)
        except BaseException as crash:
            assert type(crash).__name__ == "SimulatedCrash"
        disk.crash()
        again = open_log(disk, "/d/t-0", recovery_point=30)
        assert again.end_offset in (30, 31)
        assert read_all(again) == values(again.log_start_offset, again.end_offset)


@pytest.mark.parametrize("seed", range(5))
def test_a_flush_makes_the_producer_snapshots_of_rolled_segments_durable(seed: int) -> None:
    """The copy of a segment to remote storage takes its snapshot along, and no start makes one before the recovery
    point anew."""
    disk = SimulatedDisk(seed=seed)
    disk.make_directories("/d")
    disk.sync_directory("/")
    log = open_log(disk, "/d/t-0", SMALL)
    for number in range(COUNT):
        append(log, f"value {number}")
    log.flush(NOW_MS)
    offsets = list(log.snapshots.offsets)
    disk.crash()
    assert len(offsets) > 2 and all(decode_snapshot(disk.read(log.snapshots.path(each))) == [] for each in offsets)
