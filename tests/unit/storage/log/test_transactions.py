"""Transactions of a log through restarts, truncation, deletion and damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.log_paths import TRANSACTION_INDEX_SUFFIX
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import encode_snapshot
from moldau.storage.segment.transaction_index import AbortedTransaction, CorruptTransactionIndex
from tests.unit.storage.stories import NOW_MS, batch, open_log

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(LocalFiles(), str(tmp_path / "t-0"), SMALL)


def send(log: Log, producer_id: int, sequence: int, *values: str, epoch: int = 0) -> int:
    data = batch(*(values or ("x",)), producer=(producer_id, epoch, sequence), is_transactional=True)
    result = log.append_as_leader(data, 0, NOW_MS)
    assert result.error is ErrorCode.NONE, result
    return result.base_offset


def end(log: Log, producer_id: int, *, commits: bool = False, epoch: int = 0) -> int:
    marker = end_transaction_marker(
        commits=commits, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, timestamp=NOW_MS
    )
    result = log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert result.error is ErrorCode.NONE, result
    return result.base_offset


def stable(log: Log) -> int:
    return log.last_stable_offset(log.end_offset)


def clean_restart(log: Log) -> Log:
    log.close(NOW_MS, clean=True)
    return Log.open(
        log.fs, log.directory, SMALL, log_start_offset=log.log_start_offset, clean_shutdown=True, now_ms=NOW_MS
    )


def crash(log: Log) -> Log:
    return Log.open(log.fs, log.directory, SMALL, log_start_offset=log.log_start_offset, now_ms=NOW_MS)


RESTARTS = pytest.mark.parametrize("restart", [clean_restart, crash])


@RESTARTS
def test_open_transactions_live_through_restarts_in_any_segment(log: Log, restart: Callable[[Log], Log]) -> None:
    send(log, 1, 0)
    send(log, 2, 0)
    for sequence in range(1, 10):
        send(log, 2, sequence)
    assert len(log.segments) > 2
    before = encode_snapshot(log.producers)
    again = restart(log)
    assert encode_snapshot(again.producers) == before
    assert stable(again) == 0
    end(again, 1)
    assert stable(again) == 1
    end(again, 2, commits=True)
    assert stable(again) == again.end_offset
    assert again.aborted_transactions(0, 1) == [AbortedTransaction(1, 0, 11, 1)]


@RESTARTS
def test_an_old_producer_with_an_open_transaction_does_not_expire(log: Log, restart: Callable[[Log], Log]) -> None:
    send(log, 1, 0)
    log.producers.expire_producers(NOW_MS + 10 * log.producers.expiration_ms)
    later_ms = NOW_MS + 10 * log.producers.expiration_ms
    log.close(NOW_MS, clean=True)
    again = Log.open(log.fs, log.directory, SMALL, clean_shutdown=restart is clean_restart, now_ms=later_ms)
    assert stable(again) == 0


def test_a_truncated_marker_opens_its_transaction_again(log: Log) -> None:
    send(log, 1, 0)
    marker_offset = end(log, 1)
    send(log, 2, 0)
    assert stable(log) == 2
    log.truncate_to(marker_offset, NOW_MS)
    assert stable(log) == 0
    assert log.aborted_transactions(0, 10) == []
    assert end(log, 1, commits=True) == marker_offset
    assert stable(log) == 2 and log.aborted_transactions(0, 10) == []


def test_a_truncation_takes_the_markers_of_all_segments_behind_it(log: Log) -> None:
    ends = []
    for sequence in range(10):
        send(log, 1, sequence)
        ends.append(end(log, 1))
    assert len(log.segments) > 3
    for kept in (7, 4, 1):
        log.truncate_to(ends[kept], NOW_MS)
        found = log.aborted_transactions(0, 100)
        assert [each.last_offset for each in found] == ends[:kept]
        assert stable(log) == ends[kept] - 1, "the last one is open"
        again = crash(log)
        assert again.aborted_transactions(0, 100) == found and stable(again) == stable(log)


def test_a_truncated_transaction_is_not_open(log: Log) -> None:
    send(log, 1, 0)
    end(log, 1)
    offset = send(log, 1, 1)
    log.truncate_to(offset, NOW_MS)
    assert stable(log) == log.end_offset == offset
    log.truncate_fully_and_start_at(50, NOW_MS)
    assert (stable(log), log.aborted_transactions(0, 100)) == (50, [])


@RESTARTS
def test_records_deleted_past_the_start_of_an_open_transaction(log: Log, restart: Callable[[Log], Log]) -> None:
    """The last stable offset is then where the log begins, until the marker comes: as in Apache Kafka."""
    send(log, 1, 0)
    for sequence in range(1, 8):
        send(log, 1, sequence)
    assert log.advance_log_start(3, log.end_offset) is ErrorCode.NONE
    assert stable(log) == 3
    again = restart(log)
    assert stable(again) == 3
    end(again, 1)
    assert stable(again) == again.end_offset
    (aborted,) = again.aborted_transactions(3, 100)
    assert aborted.first_offset <= 3 and aborted.last_offset == 8


@RESTARTS
def test_a_log_start_in_the_middle_of_a_transactions_only_batch(log: Log, restart: Callable[[Log], Log]) -> None:
    """What is left of the batch is still part of the transaction: it must not be read before the marker."""
    send(log, 1, 0, "a", "b", "c")
    log.advance_log_start(1, 3)
    for offset in list(log.snapshots.offsets):
        log.snapshots.remove(offset)
    again = restart(log)
    assert stable(again) == 1
    end(again, 1)
    assert [each.first_offset for each in again.aborted_transactions(1, 3)] == [0]


def test_deleted_segments_take_their_aborted_transactions_along(log: Log) -> None:
    for sequence in range(8):
        send(log, 1, sequence)
        end(log, 1)
    open_offset = send(log, 2, 0)
    start = log.segments[2].base_offset
    log.advance_log_start(start, log.end_offset)
    deleted = log.delete_old_segments(NOW_MS, log.end_offset)
    assert sum(path.endswith(".txnindex.deleted") for path in deleted) == 2
    assert all(each.last_offset >= start for each in log.aborted_transactions(start, 100))
    assert stable(log) == open_offset


def test_a_segment_may_be_deleted_though_an_open_transaction_began_in_it(log: Log) -> None:
    for sequence in range(12):
        send(log, 1, sequence)
    log.advance_log_start(log.segments[2].base_offset, log.end_offset)
    log.delete_old_segments(NOW_MS, log.end_offset)
    start = log.log_start_offset
    assert start > 0 and stable(log) == start
    again = clean_restart(log)
    assert stable(again) == start
    end(again, 1, commits=True)
    assert stable(again) == again.end_offset


def test_the_last_stable_offset_is_that_of_the_earliest_of_many(log: Log) -> None:
    for producer_id in range(1, 6):
        send(log, producer_id, 0)
    for producer_id, expected in ((3, 0), (1, 1), (2, 3), (5, 3), (4, 10)):
        end(log, producer_id, commits=producer_id % 2 == 0)
        assert stable(log) == expected, f"after the end of producer {producer_id}"
    indexed = [each for segment in log.segments for each in segment.transaction_index.entries()]
    assert [(each.producer_id, each.last_stable_offset) for each in indexed] == [(3, 0), (1, 1), (5, 3)]


def test_a_transaction_counts_as_ended_when_its_marker_is_committed(log: Log) -> None:
    send(log, 1, 0)
    send(log, 2, 0)
    end(log, 2)
    end(log, 1)
    assert [log.last_stable_offset(high_watermark) for high_watermark in (1, 2, 3, 4)] == [0, 0, 0, 4]


def test_a_refetched_replica_knows_what_its_leader_knows(log: Log, tmp_path: Path) -> None:
    for sequence in range(6):
        send(log, 1, sequence)
        end(log, 1, commits=sequence % 2 == 0)
    send(log, 2, 0)
    follower = open_log(LocalFiles(), str(tmp_path / "u-0"), SMALL)
    copy(log, follower)
    assert stable(follower) == stable(log)
    assert follower.aborted_transactions(0, 100) == log.aborted_transactions(0, 100)
    assert encode_snapshot(follower.producers) == encode_snapshot(log.producers)


def copy(log: Log, follower: Log) -> None:
    while follower.end_offset < log.end_offset:
        read = log.read(follower.end_offset, 250, end_offset=log.end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and read.slice is not None
        assert follower.append_as_follower(read.slice.read(), 0, NOW_MS).error is ErrorCode.NONE


def test_a_read_lists_the_aborted_transactions_of_what_it_reads_alone(tmp_path: Path) -> None:
    """A large segment may hold thousands of them, and each is in the response to each fetch that it may reach into."""
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), LogConfig(index_interval_bytes=200))
    for sequence in range(200):
        send(log, 1, sequence)
        end(log, 1)
    end_offset = log.end_offset
    for offset in (0, 7, 200, 390):
        read = log.read(offset, 1000, end_offset=end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and read.slice is not None
        found = log.aborted_in_read(read, offset, end_offset)
        read_end = [header.next_offset for _, header in iterate_batches(bytes(read.slice.read()))][-1]
        assert found[0].first_offset <= offset <= found[0].last_offset
        assert read_end - 1 <= found[-1].last_offset <= read_end + 8
        assert found == sorted(found, key=lambda each: each.first_offset)


def test_the_transaction_index_has_the_layout_of_kafka(log: Log) -> None:
    send(log, 0x0102, 0)
    send(log, 3, 0)
    end(log, 0x0102)
    data = Path(log.segments[0].path(".txnindex")).read_bytes()
    assert data.hex() == "0000" + f"{0x0102:016x}" + f"{0:016x}" + f"{2:016x}" + f"{1:016x}"


def test_a_transactional_batch_of_a_coordinator_has_no_sequence(log: Log) -> None:
    """Offsets in a transaction: they open it, and no batch of them is remembered as a duplicate."""
    records = build_batch([Record(b"k", b"v", NOW_MS)], producer_id=1, producer_epoch=0, is_transactional=True)
    for offset in range(2):
        result = log.append_as_leader(records, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, offset)
    assert stable(log) == 0
    end(log, 1, commits=True)
    assert stable(log) == 3


def damaged_index(log: Log, reasons: list[str]) -> Log:
    """The log after a clean restart, in which the files rotted after they were checked."""
    log = clean_restart(log)
    failures: list[OSError] = []
    log.on_damage, log.on_failure = reasons.append, failures.append
    for segment in log.segments:
        segment.release()
        Path(segment.path(TRANSACTION_INDEX_SUFFIX)).write_bytes(b"rotten")
    return log


def test_a_read_of_a_damaged_index_ends_the_service_of_this_log_alone(log: Log) -> None:
    send(log, 1, 0)
    end(log, 1)
    reasons: list[str] = []
    log = damaged_index(log, reasons)
    read = log.read(0, 1000, end_offset=log.end_offset, at_least_one=True)
    assert isinstance(read, LogRead)
    with pytest.raises(CorruptTransactionIndex) as told:
        log.aborted_in_read(read, 0, log.end_offset)
    log.fail_unless_transient(told.value)
    assert log.failure is not None
    assert len(reasons) == 1 and "6 bytes are not whole entries" in reasons[0] and "txnindex" in reasons[0]


def test_a_marker_over_a_damaged_index_is_refused(log: Log) -> None:
    send(log, 1, 0)
    end(log, 1)
    send(log, 1, 0, epoch=1)
    reasons: list[str] = []
    log = damaged_index(log, reasons)
    marker = end_transaction_marker(
        commits=False, producer_id=1, producer_epoch=1, coordinator_epoch=1, timestamp=NOW_MS
    )
    result = log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(reasons) == 1 and log.failure is not None
