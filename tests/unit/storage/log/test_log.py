"""The log as its owner sees it: append, read, roll, close, open."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import Operation
from tests.unit.storage.stories import NOW_MS, SMALL, append, batch, open_log, read_all


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "orders-3")


@pytest.fixture
def log(directory: str) -> Log:
    return open_log(LocalFiles(), directory)


def test_a_new_log_is_empty_and_knows_its_name(log: Log, directory: str) -> None:
    assert (log.topic, log.partition, log.topic_id) == ("orders", 3, None)
    assert (log.log_start_offset, log.end_offset, log.recovery_point, log.size) == (0, 0, 0, 0)
    assert sorted(LocalFiles().list_directory(directory)) == [
        f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")
    ]


def test_what_is_appended_is_read_back_with_the_offsets_of_the_log(log: Log) -> None:
    assert append(log, "a", "b", "c") == 0
    assert append(log, "d") == 3
    assert log.end_offset == 4
    assert read_all(log) == {0: "a", 1: "b", 2: "c", 3: "d"}


def test_the_leader_writes_offset_and_epoch_into_the_batch_and_nothing_else(log: Log) -> None:
    append(log, "before")
    sent = batch("a", "b")
    stored = bytearray(sent)
    assert log.append_as_leader(memoryview(sent), 9, NOW_MS).base_offset == 1
    read = log.read(1, 1000, end_offset=3, at_least_one=True)
    assert isinstance(read, LogRead) and read.slice is not None
    stored[:8], stored[12:16] = (1).to_bytes(8, "big"), (9).to_bytes(4, "big")
    assert read.slice.file.pread(read.slice.size, read.slice.position) == stored


def test_a_batch_in_a_buffer_that_cannot_be_written_is_stored_the_same(log: Log) -> None:
    sent = bytes(batch("a"))
    for records in (sent, memoryview(sent)):
        assert log.append_as_leader(records, 2, NOW_MS).error is ErrorCode.NONE
    assert sent == bytes(batch("a")) and read_all(log) == {0: "a", 1: "a"}


def test_segments_roll_by_size_and_reads_go_over_their_borders(log: Log) -> None:
    for number in range(100):
        append(log, f"value {number}")
    assert len(log.segments) == 10
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert read_all(log, size_max=100) == read_all(log) == {n: f"value {n}" for n in range(100)}


def test_a_closed_log_opens_as_it_was(log: Log, directory: str) -> None:
    for number in range(50):
        append(log, f"value {number}", leader_epoch=number // 20)
    epochs = log.epochs.entries
    log.close(NOW_MS, clean=True)
    for clean in (True, False):
        again = open_log(LocalFiles(), directory, clean=clean, recovery_point=30)
        assert again.end_offset == 50 and again.epochs.entries == epochs
        assert read_all(again) == {n: f"value {n}" for n in range(50)}
        assert again.recovery_point == (50 if clean else 30)
        assert append(again, "more", leader_epoch=2) == 50
        again.truncate_to(50, NOW_MS)
        again.close(NOW_MS, clean=True)


def test_a_read_stops_at_the_end_that_it_is_given(log: Log) -> None:
    for number in range(10):
        append(log, f"value {number}")
    for end_offset in range(1, 11):
        read = log.read(0, 1 << 20, end_offset=end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and read.slice is not None
        data = read.slice.file.pread(read.slice.size, read.slice.position)
        headers = [header for _, header in iterate_batches(data)]
        last_offset = min(end_offset, log.segments[1].base_offset if len(log.segments) > 1 else 10) - 1
        assert headers[-1].last_offset == last_offset and headers[0].base_offset == 0


def test_a_reader_at_the_end_gets_nothing_and_one_outside_is_told_so(log: Log) -> None:
    append(log, "a", "b")
    nothing = log.read(2, 100, end_offset=2, at_least_one=True)
    assert isinstance(nothing, LogRead) and nothing.slice is None and nothing.size == 0
    assert log.read(3, 100, end_offset=2, at_least_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE
    log.advance_log_start(1, 2)
    assert log.read(0, 100, end_offset=2, at_least_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_batch_comes_whole_where_at_least_one_is_asked(log: Log) -> None:
    append(log, "x" * 500)
    whole = log.read(0, 10, end_offset=1, at_least_one=True)
    part = log.read(0, 10, end_offset=1, at_least_one=False)
    assert isinstance(whole, LogRead) and isinstance(part, LogRead)
    assert whole.size == log.size > 500 and part.size == 10


def test_a_segment_rolls_when_its_records_span_more_than_segment_ms(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=1000)
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), config)
    append(log, "first", timestamp=5000)
    append(log, "in time", timestamp=6000)
    append(log, "late", timestamp=6001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_rolls_when_its_index_is_full(tmp_path: Path) -> None:
    config = LogConfig(segment_index_bytes=40, index_interval_bytes=0)
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), config)
    for number in range(30):
        append(log, str(number), timestamp=NOW_MS + number)
    assert len(log.segments) > 3
    assert all(segment.offset_index.entries.count <= 5 for segment in log.segments)


def test_a_segment_spans_no_more_offsets_than_its_indexes_can_say(tmp_path: Path) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"))
    assert log.append_as_follower(batch("a", base_offset=0), 0, NOW_MS).error is ErrorCode.NONE
    far = (1 << 31) - 1
    assert log.append_as_follower(batch("b", base_offset=far), 0, NOW_MS).error is ErrorCode.NONE
    assert log.append_as_follower(batch("c", base_offset=far + 1), 0, NOW_MS).error is ErrorCode.NONE
    assert [segment.base_offset for segment in log.segments] == [0, far + 1]
    assert read_all(log) == {0: "a", far: "b", far + 1: "c"}


def test_a_follower_keeps_the_offsets_and_epochs_of_the_leader(tmp_path: Path) -> None:
    leader = open_log(LocalFiles(), str(tmp_path / "t-0"))
    follower = open_log(LocalFiles(), str(tmp_path / "t-1"))
    for number in range(40):
        append(leader, f"value {number}", leader_epoch=number // 15)
    while follower.end_offset < leader.end_offset:
        read = leader.read(follower.end_offset, 500, end_offset=leader.end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and read.slice is not None
        data = read.slice.file.pread(read.slice.size, read.slice.position)  # the last batch may be cut short
        assert follower.append_as_follower(data, 2, NOW_MS).error is ErrorCode.NONE
    assert read_all(follower) == read_all(leader)
    assert follower.epochs.entries == leader.epochs.entries


def test_a_follower_refuses_a_damaged_batch_and_one_that_goes_back(log: Log) -> None:
    append(log, "a", "b")
    assert log.append_as_follower(batch("x", base_offset=1), 0, NOW_MS).error is ErrorCode.OFFSET_OUT_OF_RANGE
    damaged = batch("x", base_offset=2)
    damaged[-1] ^= 1
    assert log.append_as_follower(damaged, 0, NOW_MS).error is ErrorCode.CORRUPT_MESSAGE
    assert log.end_offset == 2 and log.failure is None


def test_the_quorum_appends_several_batches_at_once(log: Log) -> None:
    result = log.append_as_leader(batch("a", "b") + batch("c"), 4, NOW_MS, origin=AppendOrigin.RAFT)
    assert (result.base_offset, result.last_offset) == (0, 2)
    assert read_all(log) == {0: "a", 1: "b", 2: "c"}


def test_leader_epochs_say_where_each_ended(log: Log) -> None:
    for epoch in (0, 0, 2, 2, 5):
        append(log, "x", leader_epoch=epoch)
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (0, 2)
    assert log.end_offset_for_epoch(4) == (2, 4)
    assert log.end_offset_for_epoch(5) == (5, 5)
    assert log.end_offset_for_epoch(6) == (-1, -1)


def test_records_are_found_by_their_time(log: Log) -> None:
    for number in range(60):
        append(log, f"{number}a", f"{number}b", timestamp=NOW_MS + number * 10)
    for number in (0, 1, 17, 59):
        found = log.offset_for_timestamp(NOW_MS + number * 10)
        assert found is not None and (found.offset, found.timestamp) == (number * 2, NOW_MS + number * 10)
    second = log.offset_for_timestamp(NOW_MS + 11)
    assert second is not None and second.offset == 3
    assert log.offset_for_timestamp(NOW_MS + 10_000) is None
    latest = log.offset_of_max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp) == (119, NOW_MS + 591)


def test_descriptors_are_given_back_and_opened_again(log: Log) -> None:
    for number in range(60):
        append(log, f"value {number}")
    read = log.read(0, 100, end_offset=60, at_least_one=True)
    assert isinstance(read, LogRead) and read.slice is not None
    log.release_files()
    log.release_files()
    assert read.slice.file.pread(8, 0) == bytes(8), "a reader keeps its file open"
    assert read_all(log) == {n: f"value {n}" for n in range(60)}
    assert append(log, "more") == 60


def test_a_follower_writes_a_whole_answer_at_once_and_rolls_as_the_leader_would(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.make_directories("/d")
    follower = open_log(disk, "/d/t-0")
    answer = b"".join(batch(f"value {n}", base_offset=n, leader_epoch=n // 10) for n in range(40))
    writes = disk.counts[Operation.WRITE]
    assert follower.append_as_follower(answer, 3, NOW_MS).last_offset == 39
    leader = open_log(LocalFiles(), str(tmp_path / "t-1"))
    for number in range(40):
        append(leader, f"value {number}", leader_epoch=number // 10)
    assert [s.base_offset for s in follower.segments] == [s.base_offset for s in leader.segments]
    assert disk.counts[Operation.WRITE] - writes < 40
    assert read_all(follower) == read_all(leader) and follower.epochs.entries == leader.epochs.entries


def test_a_follower_leaves_out_what_a_later_leader_wrote(log: Log) -> None:
    answer = batch("a", base_offset=0, leader_epoch=1) + batch("b", base_offset=1, leader_epoch=2)
    assert log.append_as_follower(answer, 1, NOW_MS).last_offset == 0
    assert log.append_as_follower(answer[len(answer) // 2 :], 2, NOW_MS).base_offset == 1


def test_a_follower_far_behind_begins_a_segment_where_the_leader_is(log: Log) -> None:
    append(log, "a")
    assert log.append_as_follower(batch("far", base_offset=1 << 40), 0, NOW_MS).last_offset == 1 << 40
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 40]
    assert read_all(log) == {0: "a", 1 << 40: "far"}


def test_a_read_that_reaches_over_a_roll_ends_with_its_segment_and_does_not_look_for_its_end() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data/t-0")
    log = open_log(disk, "/data/t-0")
    for number in range(30):
        append(log, f"value {number}")
    first, second = log.segments[:2]
    before = disk.counts[Operation.READ]
    for end_offset in (log.end_offset, second.base_offset):
        read = log.read(0, 1 << 20, end_offset=end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and (read.size, read.base_offset) == (first.size, 0)
    assert disk.counts[Operation.READ] - before <= 4


@pytest.mark.parametrize(
    ("error", "code", "has_failed"),
    [
        (OSError(errno.EMFILE, "too many open files"), ErrorCode.KAFKA_STORAGE_ERROR, False),
        (OSError(errno.EIO, "the disk"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (MalformedMessage("a damaged batch"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (RecordSizeExceeded("a large record"), ErrorCode.INVALID_RECORD, False),
    ],
)
def test_a_lookup_that_fails_has_an_error_and_only_a_fault_of_the_disk_fails_the_log(
    tmp_path: Path, error: OSError | MalformedMessage, code: ErrorCode, has_failed: bool
) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), LogConfig())
    assert log.error_of_lookup(error) is code
    assert (log.failure is not None) is has_failed
