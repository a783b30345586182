"""Cleaned segments in the place of others: what readers hold, what is refused, what the checkpoints say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.request import CleaningDone, LogChanged, cleaning_request
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log.segment_swap import SegmentCleaned, discard_cleaned
from moldau.storage.segment.segment_listing import list_segments
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import (
    COMPACTED,
    LIMITS,
    NOW_MS,
    SALT,
    checkpoint,
    clean_log,
    offsets,
    part_of,
    request_of,
    send,
    stored,
    table,
)

ROOT = "/data"
CONFIG = replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=1000)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def open_directory(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    owner = LogDirectory.open(disk, ROOT, lambda _: None)
    return owner, owner.load_log("t", 0, CONFIG, NOW_MS, lambda _: None)


def filled(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    """Ten segments and more, each with some records that are the latest of their key."""
    owner, log = open_directory(disk)
    for number in range(60):
        send(log, (f"k{number % 40}", f"{number:030}"), timestamp=NOW_MS + 50 * number)
    log.roll(NOW_MS)
    log.flush(NOW_MS)
    checkpoint(owner)
    return owner, log


def cleaned_segments(disk: SimulatedDisk, log: Log) -> list[SegmentCleaned]:
    """Each of several segments: segment.bytes was raised meanwhile."""
    request = replace(request_of(log), segment_bytes=2000)
    found = [event for event in clean_segments(disk, request) if isinstance(event, SegmentCleaned)]
    assert len(found) > 2 and all(len(event.replaced) > 1 for event in found[:2])
    return found


def test_a_reader_in_an_old_file_goes_on_reading_it(disk: SimulatedDisk) -> None:
    _, log = filled(disk)
    read = log.read(0, 1 << 20, end_offset=log.end_offset, at_least_one=True)
    assert isinstance(read, LogRead) and read.slice is not None
    before = read.slice.read()
    clean_log(disk, log)
    assert read.slice.read() == before
    after = log.read(0, 1 << 20, end_offset=log.end_offset, at_least_one=True)
    assert isinstance(after, LogRead) and after.slice is not None and after.slice.read() != before


def test_the_replaced_files_wait_under_the_name_of_deleted_ones(disk: SimulatedDisk) -> None:
    _, log = filled(disk)
    first = cleaned_segments(disk, log)[0]
    snapshots = set(log.snapshots.offsets)
    paths = log.swap_cleaned(first, NOW_MS)
    assert paths and all(path.endswith(".deleted") and disk.exists(path) for path in paths)
    vanished = {base for base, _ in first.replaced[1:]}
    assert set(log.snapshots.offsets) == snapshots - vanished and vanished
    assert [segment.base_offset for segment in log.segments] == [
        each.base_offset for each in list_segments(disk, log.directory)
    ]


def test_a_replaced_segment_need_not_have_its_producer_snapshot_any_more(disk: SimulatedDisk) -> None:
    _, log = filled(disk)
    first = cleaned_segments(disk, log)[0]
    disk.unlink(log.snapshots.path(first.replaced[1].base_offset))
    assert log.swap_cleaned(first, NOW_MS) and log.failure is None
    assert first.replaced[1].base_offset not in log.snapshots.offsets


def test_output_is_refused_once_retention_has_deleted_a_source(disk: SimulatedDisk) -> None:
    _, log = filled(disk)
    events = cleaned_segments(disk, log)
    expected = table(log)
    deleted = log.delete_old_segments(log.segments[0].largest_timestamp() + 1001, log.end_offset)
    assert deleted and log.segments[0].base_offset < events[0].replaced[-1].base_offset
    # Not the second one either: what it drops may have an older record behind it in the first, which was not cleaned.
    for event in events:
        assert log.swap_cleaned(event, NOW_MS) is None
        discard_cleaned(disk, event)
        discard_cleaned(disk, event)
    assert not [name for name in disk.list_directory(log.directory) if "cleaned" in name]
    assert table(log).items() <= expected.items()


def test_the_rest_is_swapped_where_retention_took_all_that_was_swapped_before(disk: SimulatedDisk) -> None:
    _, log = filled(disk)
    first, second, *_ = cleaned_segments(disk, log)
    assert log.swap_cleaned(first, NOW_MS) is not None
    late_ms = log.segments[0].largest_timestamp() + 1001
    log.delete_old_segments(late_ms, log.end_offset)
    assert log.segments[0].base_offset == second.base_offset
    assert log.swap_cleaned(second, NOW_MS) is not None


@pytest.mark.parametrize("offset", [0, 1, 30, 59])
def test_output_is_refused_after_a_truncation(disk: SimulatedDisk, offset: int) -> None:
    owner, log = filled(disk)
    clean_log(disk, log, NOW_MS, owner=owner)
    for number in range(10):
        send(log, (f"k{number % 40}", f"{number:030}"))
    log.roll(NOW_MS)
    log.flush(NOW_MS)
    events = [event for event in clean_segments(disk, request_of(log)) if isinstance(event, SegmentCleaned)]
    count = log.truncation_count
    log.lower_recovery_point(offset)
    assert log.first_dirty_offset == offset
    assert log.swap_cleaned(events[0], NOW_MS) is None
    log.truncate_to(offset, NOW_MS)
    log.note_cleaned(1000, count)
    assert log.first_dirty_offset is not None and log.first_dirty_offset <= offset
    assert log.swap_cleaned(events[0], NOW_MS) is None


def test_a_part_from_before_a_truncation_is_not_cleaned(disk: SimulatedDisk) -> None:
    """The records behind the truncation are not committed, although the offsets of the part were."""
    _, log = filled(disk)
    part = part_of(log)
    log.lower_recovery_point(30)
    with pytest.raises(LogChanged):
        cleaning_request(log, part, LIMITS, SALT, NOW_MS)


def test_a_failed_log_is_not_swapped(disk: SimulatedDisk) -> None:
    _, log = filled(disk)
    event = cleaned_segments(disk, log)[0]
    log.fail_log(OSError(5, "the disk is gone"))
    assert log.swap_cleaned(event, NOW_MS) is None


def test_the_offset_of_the_cleaner_is_checkpointed_lowered_and_removed(disk: SimulatedDisk) -> None:
    owner, log = filled(disk)
    done = clean_log(disk, log, owner=owner)
    assert isinstance(done, CleaningDone) and done.next_dirty_offset == 60
    path = f"{ROOT}/cleaner-offset-checkpoint"
    assert disk.read(path) == b"0\n1\nt 0 60\n"
    disk.crash()
    owner, log = open_directory(disk)
    assert log.first_dirty_offset == 60
    log.lower_recovery_point(33)
    checkpoint(owner)
    assert disk.read(path) == b"0\n1\nt 0 33\n"
    log.truncate_to(20, NOW_MS)
    assert log.first_dirty_offset == 20
    log.truncate_fully_and_start_at(7, NOW_MS)
    checkpoint(owner)
    assert disk.read(path) == b"0\n1\nt 0 7\n"
    owner.delete_log("t", 0, "0123456789abcdef" * 2)
    checkpoint(owner)
    assert disk.read(path) == b"0\n0\n"


def test_a_former_log_s_offset_is_not_applied_to_a_new_one(disk: SimulatedDisk) -> None:
    owner, log = filled(disk)
    clean_log(disk, log, owner=owner)
    owner.delete_log("t", 0, "0123456789abcdef" * 2)
    log = owner.create_log("t", 0, bytes(range(16)), CONFIG, NOW_MS)
    assert log.first_dirty_offset is None
    send(log, ("a", "1"))
    disk.crash()
    _, log = open_directory(disk)
    assert log.first_dirty_offset is None


@pytest.mark.parametrize("policy", [("compact",), ("delete",), ()])
def test_gaps_between_cleaned_segments_survive_a_crash(disk: SimulatedDisk, policy: tuple[str, ...]) -> None:
    """Also if the topic is not compacted any more when the broker starts."""
    owner, log = filled(disk)
    for number in range(80):
        send(log, (f"k{number % 2}", f"{number:030}"))
    log.roll(NOW_MS)
    clean_log(disk, log, owner=owner)
    ends = [tail.end_offset for segment in log.segments[:-1] if (tail := segment.find_tail())]
    assert any(end < later.base_offset for end, later in zip(ends, log.segments[1:], strict=True))
    expected, before = table(log), offsets(log)
    disk.crash()
    owner = LogDirectory.open(disk, ROOT, lambda _: None)
    log = owner.load_log("t", 0, replace(CONFIG, cleanup_policy=policy), NOW_MS, lambda _: None)
    assert table(log) == expected and offsets(log) == before


def test_a_follower_s_gaps_survive_a_killed_process(disk: SimulatedDisk) -> None:
    """A follower that fetches a compacted log has gaps from the first append on, past its recovery point."""
    _, leader = filled(disk)
    for number in range(80):
        send(leader, (f"k{number % 2}", f"{number:030}"))
    leader.roll(NOW_MS)
    clean_log(disk, leader)
    follower = Log.open(disk, "/data/f-0", replace(CONFIG, segment_bytes=500), now_ms=NOW_MS)
    for each in stored(leader):
        assert not follower.append_as_follower(each.data, 0, NOW_MS).error
    assert len(follower.segments) > 3
    expected = offsets(leader)
    follower.close(NOW_MS, clean=False)
    disk.end_process()
    again = Log.open(disk, "/data/f-0", replace(CONFIG, segment_bytes=500), now_ms=NOW_MS)
    assert offsets(again) == expected
