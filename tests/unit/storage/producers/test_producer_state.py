"""Each batch of a producer is taken once, in order, from its newest epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import SEQUENCE_MAX
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.append import AppendOrigin, AppendResult
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from moldau.storage.segment.transaction_index import AbortedTransaction
from tests.unit.storage.stories import NOW_MS, append, batch, open_log, read_all

BIG = LogConfig()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(LocalFiles(), str(tmp_path / "t-0"), BIG)


def send(
    log: Log, sequence: int, *values: str, epoch: int = 0, pid: int = 7, is_transactional: bool = False
) -> AppendResult:
    sent = batch(*(values or ("x",)), producer=(pid, epoch, sequence), is_transactional=is_transactional)
    return log.append_as_leader(sent, 0, NOW_MS)


def end_transaction(
    log: Log, *, commits: bool, pid: int = 7, epoch: int = 0, coordinator_epoch: int = 3
) -> AppendResult:
    marker = end_transaction_marker(
        commits=commits, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp=NOW_MS
    )
    return log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def test_the_next_sequence_is_taken_and_any_other_refused(log: Log) -> None:
    assert send(log, 0, "a", "b").error is ErrorCode.NONE
    assert send(log, 2, "c").base_offset == 2
    assert send(log, 4).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 3


@pytest.mark.parametrize("back", range(5))
def test_a_repeated_batch_is_answered_as_it_was(log: Log, back: int) -> None:
    answers = [send(log, sequence) for sequence in range(8)]
    again = send(log, 7 - back)
    assert again.is_duplicate and again.error is ErrorCode.NONE
    assert (again.base_offset, again.last_offset) == (answers[7 - back].base_offset, answers[7 - back].last_offset)
    assert log.end_offset == 8


def test_a_repeated_batch_older_than_the_last_five_is_out_of_order(log: Log) -> None:
    for sequence in range(8):
        send(log, sequence)
    assert send(log, 2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_same_first_sequence_with_another_length_is_no_duplicate(log: Log) -> None:
    send(log, 0, "a", "b")
    assert send(log, 0, "a").error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero(log: Log) -> None:
    assert send(log, SEQUENCE_MAX - 1, "a", "b", "c").error is ErrorCode.NONE  # MAX-1, MAX, 0
    assert send(log, SEQUENCE_MAX - 1, "a", "b", "c").is_duplicate
    assert send(log, 1, "d").base_offset == 3
    assert send(log, SEQUENCE_MAX, "e").error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_nobody_knows_may_begin_anywhere(log: Log) -> None:
    assert send(log, 1234).error is ErrorCode.NONE
    assert send(log, 1235).error is ErrorCode.NONE


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one(log: Log) -> None:
    send(log, 0)
    assert send(log, 5, epoch=1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).error is ErrorCode.NONE
    assert send(log, 1, epoch=0).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=0).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_disturb_one_another(log: Log) -> None:
    for sequence in range(3):
        for pid in (1, 2, 3):
            assert send(log, sequence, pid=pid).error is ErrorCode.NONE
    assert log.end_offset == 9


def test_after_a_clean_stop_all_five_are_known_though_the_snapshot_has_the_last_alone(log: Log) -> None:
    for sequence in range(8):
        send(log, sequence)
        send(log, 100 + sequence, pid=8)
    log.close(NOW_MS, clean=True)
    again = open_log(LocalFiles(), log.directory, BIG, clean=True)
    for sequence in range(3, 8):
        repeated = send(again, sequence)
        assert repeated.is_duplicate and repeated.base_offset == 2 * sequence
    assert send(again, 2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(again, 103, pid=8).is_duplicate
    assert send(again, 8).base_offset == 16


def test_batches_in_earlier_segments_and_of_other_epochs_are_told_apart_after_a_restart(tmp_path: Path) -> None:
    small = LogConfig(segment_bytes=200, index_interval_bytes=100)
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), small)
    for sequence in range(4):
        send(log, sequence)
    for sequence in range(3):
        send(log, sequence, epoch=1)
    assert len(log.segments) > 2
    log.close(NOW_MS, clean=True)
    again = open_log(LocalFiles(), log.directory, BIG, clean=True)
    assert [send(again, sequence, epoch=1).base_offset for sequence in range(3)] == [4, 5, 6]
    assert send(again, 3, epoch=0).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert again.end_offset == 7


def test_reading_back_stops_where_a_producer_was_silent_for_long(tmp_path: Path) -> None:
    """What lies far behind is no request in flight, and a start must not read whole logs."""
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), LogConfig(index_interval_bytes=1))
    send(log, 0)
    for sequence in range(400):
        send(log, sequence, pid=8)
    send(log, 1)
    log.close(NOW_MS, clean=True)
    again = open_log(LocalFiles(), log.directory, BIG, clean=True)
    assert send(again, 1).is_duplicate
    assert send(again, 0).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_wrote_nothing_for_minutes_before_the_end_has_nothing_in_flight(log: Log) -> None:
    for sequence in range(2):
        log.append_as_leader(batch("x", timestamp=NOW_MS, producer=(7, 0, sequence)), 0, NOW_MS)
    log.append_as_leader(batch("x", timestamp=NOW_MS + 300_001, producer=(8, 0, 0)), 0, NOW_MS)
    log.close(NOW_MS, clean=True)
    again = open_log(LocalFiles(), log.directory, BIG, clean=True)
    assert send(again, 1).is_duplicate
    assert send(again, 0).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_a_crash_all_five_are_read_from_the_log(log: Log) -> None:
    for sequence in range(8):
        send(log, sequence)
    again = open_log(LocalFiles(), log.directory, BIG)
    assert [send(again, sequence).base_offset for sequence in range(3, 8)] == [3, 4, 5, 6, 7]
    assert again.end_offset == 8


def test_a_producer_that_is_silent_for_long_is_forgotten(log: Log) -> None:
    send(log, 0)
    send(log, 0, pid=8, is_transactional=True)
    assert log.producers.expire_producers(NOW_MS + log.producers.expiration_ms - 1) == []
    assert log.producers.expire_producers(NOW_MS + log.producers.expiration_ms) == [7], (
        "an open transaction keeps the other"
    )
    assert send(log, 99).error is ErrorCode.NONE


def test_an_open_transaction_holds_back_the_last_stable_offset(log: Log) -> None:
    append(log, "plain")
    send(log, 0, "a", pid=1, is_transactional=True)
    send(log, 0, "b", pid=2, is_transactional=True)
    assert log.last_stable_offset(3) == 1
    assert end_transaction(log, commits=True, pid=1).base_offset == 3
    assert log.last_stable_offset(3) == 1, "its marker is not below the high watermark yet"
    assert log.last_stable_offset(4) == 2
    end_transaction(log, commits=False, pid=2)
    assert log.last_stable_offset(5) == 5
    assert log.aborted_transactions(0, 5) == [AbortedTransaction(2, 2, 4, 5)]
    assert log.aborted_transactions(0, 2) == [] and log.aborted_transactions(4, 5) != []


def test_transactions_are_known_again_after_a_crash_and_after_a_clean_end(log: Log) -> None:
    send(log, 0, "a", pid=1, is_transactional=True)
    end_transaction(log, commits=False, pid=1)
    send(log, 1, "b", pid=1, is_transactional=True)
    log.close(NOW_MS, clean=True)
    for clean in (True, False):
        again = open_log(LocalFiles(), log.directory, BIG, clean=clean)
        assert again.last_stable_offset(3) == 2
        assert again.aborted_transactions(0, 3) == [AbortedTransaction(1, 0, 1, 2)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["transactions", "offsets", "both"])
def test_no_abort_is_forgotten_when_indexes_are_made_again(log: Log, clean: bool, damage: str) -> None:
    send(log, 0, "a", pid=1, is_transactional=True)
    end_transaction(log, commits=False, pid=1)
    log.close(NOW_MS, clean=True)  # with a snapshot that is past the abort
    segment = log.segments[0]
    if damage != "offsets":
        path = Path(segment.path(".txnindex"))
        path.write_bytes(path.read_bytes()[:-1])
    if damage != "transactions":
        Path(segment.path(".index")).write_bytes(b"x")
    again = open_log(LocalFiles(), log.directory, BIG, recovery_point=2, clean=clean)
    assert again.aborted_transactions(0, 2) == [AbortedTransaction(1, 0, 1, 2)]
    assert again.producers.entries[1].coordinator_epoch == 3


def test_a_coordinator_of_an_older_epoch_is_fenced(log: Log) -> None:
    send(log, 0, is_transactional=True)
    assert end_transaction(log, commits=True, coordinator_epoch=3).error is ErrorCode.NONE
    assert end_transaction(log, commits=True, coordinator_epoch=2).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    send(log, 0, epoch=4)
    assert end_transaction(log, commits=True, epoch=3).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_epoch_of_a_marker_resets_the_sequence(log: Log) -> None:
    send(log, 0, "a", is_transactional=True)
    end_transaction(log, commits=True, epoch=1)
    assert send(log, 1).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, epoch=1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).error is ErrorCode.NONE


def test_a_snapshot_is_refused_when_any_bit_of_it_is_wrong(log: Log) -> None:
    send(log, 0, pid=1)
    send(log, 5, pid=2, epoch=3, is_transactional=True)
    data = encode_snapshot(log.producers)
    assert [(e.producer_id, e.producer_epoch, e.last_sequence) for e in decode_snapshot(data)] == [(1, 0, 0), (2, 3, 5)]
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(damaged)
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:size])


def test_the_snapshot_has_the_layout_of_kafka(log: Log) -> None:
    send(log, 0, "a", "b", pid=0x0102, epoch=3)
    data = encode_snapshot(log.producers)
    fields = f"0000000000000102000300000001000000000000000100000001{NOW_MS + 1:016x}ffffffff"
    body = bytes.fromhex("00000001" + fields + "ffffffffffffffff")
    assert data == bytes.fromhex("0001") + crc32c(body, 0).to_bytes(4, "big") + body


def test_a_refused_batch_changes_nothing(log: Log) -> None:
    send(log, 0, "a")
    before = read_all(log)
    for wrong in (send(log, 9), send(log, 1, epoch=-1)):
        assert wrong.error is not ErrorCode.NONE and wrong.base_offset == -1
    assert read_all(log) == before and send(log, 1, "b").error is ErrorCode.NONE
