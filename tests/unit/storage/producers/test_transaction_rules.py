"""Which transactional batches and markers a leader's log takes, by the tables of `producer_state.py`.

The tables were read off Apache Kafka 4.3.1.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.append import AppendOrigin, AppendResult
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.verification import NOT_REQUIRED, VerificationGuard
from tests.unit.storage.stories import NOW_MS, batch, open_log

PRODUCER = 7
NONE = ErrorCode.NONE
EPOCH_MAX = 32_767


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(LocalFiles(), str(tmp_path / "t-0"), LogConfig())


def send(
    log: Log,
    sequence: int,
    *,
    epoch: int = 5,
    guard: VerificationGuard | None = NOT_REQUIRED,
    is_transactional: bool = True,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendResult:
    data = batch("x", producer=(PRODUCER, epoch, sequence), is_transactional=is_transactional)
    return log.append_as_leader(data, 0, NOW_MS, guard=guard, origin=origin)


def mark(log: Log, *, epoch: int = 5, coordinator_epoch: int = 3, version: int = 0) -> ErrorCode:
    marker = end_transaction_marker(
        commits=True, producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp=NOW_MS
    )
    return log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=version).error


def verify(
    log: Log, sequence: int = 0, *, epoch: int = 5, bumps: bool = False, now_ms: int = NOW_MS
) -> VerificationGuard:
    return log.producers.verifications.begin_verification(
        PRODUCER, epoch, sequence, 0, now_ms, supports_epoch_bump=bumps
    )


# Data


def test_a_batch_opens_a_transaction_with_the_guard_that_is_noted_and_without_one_goes_on(log: Log) -> None:
    assert send(log, 0, guard=None).error is ErrorCode.INVALID_TXN_STATE
    assert send(log, 0, guard=verify(log)).error is NONE
    assert send(log, 1, guard=None).error is NONE
    assert log.producers.entries[PRODUCER].open_transaction_offset == 0


def test_a_guard_is_good_for_one_transaction(log: Log) -> None:
    guard = verify(log)
    assert send(log, 0, guard=guard).error is NONE
    assert mark(log) is NONE
    assert send(log, 1, guard=guard).error is ErrorCode.INVALID_TXN_STATE
    assert log.last_stable_offset(log.end_offset) == log.end_offset


def test_a_marker_takes_the_guard_of_its_producer(log: Log) -> None:
    """The batch was verified, and was appended after the transaction had ended."""
    guard = verify(log)
    assert mark(log) is NONE
    assert send(log, 0, guard=guard).error is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_the_transaction_before_leaves_the_guard_of_the_next_one(log: Log) -> None:
    """Under transaction.version 2 it carries the epoch of the next transaction, which is verified already."""
    send(log, 0, epoch=5)
    assert mark(log, epoch=6, version=2) is NONE
    guard = verify(log, epoch=6, bumps=True)
    assert mark(log, epoch=6, version=2) is NONE
    assert send(log, 0, epoch=6, guard=guard).error is NONE


@pytest.mark.parametrize(("marker_epoch", "bumps"), [(7, True), (6, False)])
def test_any_other_marker_takes_it(log: Log, marker_epoch: int, bumps: bool) -> None:
    guard = verify(log, epoch=6, bumps=bumps)
    assert mark(log, epoch=marker_epoch, version=2) is NONE
    assert send(log, 0, epoch=7, guard=guard).error is ErrorCode.INVALID_TXN_STATE


def test_batches_that_wait_together_share_a_guard_and_go_in_order(log: Log) -> None:
    second, first = verify(log, 3), verify(log, 2)
    assert first is second
    assert send(log, 3, guard=second).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 2, guard=first).error is NONE
    assert send(log, 3, guard=second).error is NONE


def test_a_later_epoch_takes_the_guard_over(log: Log) -> None:
    verify(log, 0, epoch=5)
    guard = verify(log, 4, epoch=6)
    assert verify(log, 9, epoch=5) is guard, "an epoch that is over changes nothing"
    assert (guard.producer_epoch, guard.lowest_sequence) == (6, 4)


def test_after_an_epoch_bump_sequences_begin_at_zero(log: Log) -> None:
    assert send(log, 1, guard=verify(log, 1, bumps=True)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, guard=verify(log, 0, bumps=True)).error is NONE
    assert mark(log, epoch=6, version=2) is NONE
    assert (
        send(log, 1, epoch=6, guard=verify(log, 1, epoch=6, bumps=True)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert send(log, 0, epoch=6, guard=verify(log, 0, epoch=6, bumps=True)).error is NONE


def test_a_producer_of_the_older_protocol_may_go_on_anywhere_where_nothing_is_known_of_it(log: Log) -> None:
    assert send(log, 40, guard=verify(log, 40)).error is NONE


def test_a_duplicate_is_answered_whatever_else_holds(log: Log) -> None:
    assert send(log, 0).base_offset == 0
    mark(log)
    again = send(log, 0, guard=None)
    assert again.is_duplicate and again.base_offset == 0


def test_an_epoch_that_is_over_is_refused_before_the_guard_counts(log: Log) -> None:
    send(log, 0)
    assert mark(log, epoch=6, version=2) is NONE
    assert send(log, 1, guard=None).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, guard=verify(log)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_outside_of_transactions_waits_until_none_is_open(log: Log) -> None:
    send(log, 0)
    assert send(log, 1, is_transactional=False).error is ErrorCode.INVALID_TXN_STATE
    assert send(log, 0, epoch=6, is_transactional=False).error is ErrorCode.INVALID_TXN_STATE
    assert send(log, 3, is_transactional=False).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sequence is first"
    mark(log)
    assert send(log, 1, is_transactional=False).error is NONE


def test_a_coordinators_batch_obeys_epoch_and_guard_and_has_no_sequence(log: Log) -> None:
    coordinator = AppendOrigin.COORDINATOR
    assert send(log, -1, guard=None, origin=coordinator).error is ErrorCode.INVALID_TXN_STATE
    assert send(log, -1, guard=verify(log, -1), origin=coordinator).error is NONE
    assert send(log, -1, guard=None, origin=coordinator).error is NONE
    assert send(log, -1, epoch=4, guard=None, origin=coordinator).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_guards_expire_and_are_forgotten_with_the_term(log: Log) -> None:
    expiration_ms = log.producers.expiration_ms
    guard = verify(log)
    log.producers.expire_producers(NOW_MS + expiration_ms - 1)
    assert log.producers.verifications.guards == {PRODUCER: guard}
    log.producers.expire_producers(NOW_MS + expiration_ms)
    assert log.producers.verifications.guards == {}
    guard = verify(log)
    log.producers.verifications.clear()
    assert send(log, 0, guard=guard).error is ErrorCode.INVALID_TXN_STATE


# Markers


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("epoch", [4, 5, 6])
def test_a_markers_epoch_against_the_known_one(log: Log, epoch: int, version: int, is_open: bool) -> None:
    send(log, 0, epoch=5)
    if not is_open:
        mark(log, epoch=5)
    is_refused = epoch < 5 or (epoch == 5 and version == 2 and is_open)
    before = log.end_offset
    assert mark(log, epoch=epoch, version=version) is (ErrorCode.INVALID_PRODUCER_EPOCH if is_refused else NONE)
    assert log.end_offset == before + (not is_refused)
    assert log.producers.entries[PRODUCER].producer_epoch == (5 if is_refused else epoch)
    assert (log.producers.first_unstable_offset() is not None) == (is_open or not is_refused) or not is_open


def test_at_the_last_epoch_a_marker_has_the_epoch_of_its_transaction(log: Log) -> None:
    send(log, 0, epoch=EPOCH_MAX)
    assert mark(log, epoch=EPOCH_MAX, version=2) is NONE


def test_a_marker_for_a_producer_that_is_not_known_is_taken(log: Log) -> None:
    assert mark(log, epoch=0, version=2) is NONE
    assert log.producers.entries[PRODUCER].open_transaction_offset == -1


@pytest.mark.parametrize("version", [0, 2])
def test_a_coordinator_of_an_older_epoch_ends_nothing(log: Log, version: int) -> None:
    send(log, 0)
    assert mark(log, epoch=6, coordinator_epoch=3, version=version) is NONE
    send(log, 0, epoch=6)
    assert mark(log, epoch=7, coordinator_epoch=2, version=version) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.producers.has_open_transaction(PRODUCER, 6)
    assert mark(log, epoch=7, coordinator_epoch=3, version=version) is NONE


def test_a_late_batch_of_the_old_epoch_opens_nothing(log: Log) -> None:
    send(log, 0)
    guard = verify(log, 1)
    assert mark(log, epoch=6, version=2) is NONE
    assert send(log, 1, guard=guard).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset(log.end_offset) == log.end_offset
