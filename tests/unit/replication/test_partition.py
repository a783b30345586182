"""A partition under its leader: appends move the high watermark, and those who wait hear of it."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from replication.partition import Partition
from storage.log.log import Log
from storage.log_config import INT64_MAX, LogConfig
from tests.support.node import batch
from tests.support.simulation.disk import SimulatedDisk

EPOCH = 5


def partition(*, min_insync_replicas: int = 1, high_watermark: int = 0, flush_messages: int = INT64_MAX) -> Partition:
    disk = SimulatedDisk("a seed")
    disk.make_directories("/t-0")
    log = Log.open(disk, "/t-0", LogConfig(flush_messages=flush_messages), now_ms=0)
    made = Partition("t", bytes(16), 0, log, high_watermark)
    made.min_insync_replicas = min_insync_replicas
    made.become_leader(1, EPOCH, (1,))
    return made


def test_with_the_leader_alone_in_sync_every_append_is_committed() -> None:
    under_test = partition()
    assert under_test.append(batch("a", "b"), -1, 0, 9).base_offset == 0
    assert (under_test.high_watermark, under_test.last_stable_offset) == (2, 2)
    assert under_test.append_internal(batch("c"), 0).base_offset == 2
    assert under_test.high_watermark == 3


def test_where_a_sync_is_asked_for_nothing_is_committed_before_it() -> None:
    """A consumer must not read what a loss of power could take back."""
    under_test = partition(flush_messages=2)
    heard: list[int] = []
    under_test.wait(lambda: heard.append(under_test.high_watermark))
    under_test.append(batch("a"), -1, 0, 9)
    assert not under_test.awaits_flush and heard == [1], "one alone needs no sync"
    under_test.append(batch("b"), -1, 0, 9)
    under_test.append_internal(batch("c"), 0)
    assert under_test.awaits_flush and heard == [1]
    under_test.log.flush(0)
    under_test.advance()
    assert not under_test.awaits_flush and heard == [1, 3]


def test_becoming_leader_does_not_commit_what_was_never_synced() -> None:
    under_test = partition(flush_messages=1)
    under_test.append(batch("a"), -1, 0, 9)
    again = Partition("t", bytes(16), 0, under_test.log, 0)
    again.become_leader(1, EPOCH + 1, (1,))
    assert again.awaits_flush and again.high_watermark == 0


def test_becoming_leader_commits_what_the_log_holds_and_begins_an_epoch() -> None:
    under_test = partition()
    under_test.append(batch("a"), -1, 0, 9)
    again = Partition("t", bytes(16), 0, under_test.log, 0)
    heard: list[int] = []
    again.wait(lambda: heard.append(again.high_watermark))
    again.become_leader(1, EPOCH + 1, (1,))
    assert heard == [1]
    assert under_test.log.epochs.epoch_of(1) == EPOCH + 1
    again.become_leader(1, EPOCH + 1, (1,))
    assert heard == [1], "nothing is new"


def test_too_few_in_sync_refuse_acks_all_and_what_coordinators_write() -> None:
    under_test = partition(min_insync_replicas=2)
    assert under_test.append(batch("a"), -1, 0, 9).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert under_test.append_internal(batch("a"), 0).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert under_test.log.end_offset == 0
    assert under_test.append(batch("a"), 1, 0, 9).error is ErrorCode.NONE


def test_a_refused_batch_moves_nothing() -> None:
    under_test = partition()
    heard: list[int] = []
    under_test.wait(lambda: heard.append(1))
    assert under_test.append(batch("a")[:-1], -1, 0, 9).error is not ErrorCode.NONE
    assert under_test.high_watermark == 0 and not heard


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (EPOCH, ErrorCode.NONE),
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epochs_that_clients_know(epoch: int, error: ErrorCode) -> None:
    assert partition().check_leader_epoch(epoch) is error


def test_those_who_wait_hear_of_each_move_until_they_have_enough() -> None:
    under_test = partition()
    heard: list[int] = []

    def once() -> None:
        heard.append(under_test.high_watermark)
        under_test.forget(once)

    def always() -> None:
        heard.append(-under_test.high_watermark)

    under_test.wait(once)
    under_test.wait(always)
    for value in "abc":
        under_test.append(batch(value), -1, 0, 9)
    assert heard == [1, -1, -2, -3]
    under_test.forget(once)
    under_test.forget(always)
    under_test.wake()
    assert heard == [1, -1, -2, -3]


def test_ten_thousand_may_wait_and_leave() -> None:
    under_test = partition()
    waiters = [lambda i=i: None for i in range(10_000)]
    for waiter in waiters:
        under_test.wait(waiter)
    for waiter in waiters:
        under_test.forget(waiter)
    assert not under_test._waiters
