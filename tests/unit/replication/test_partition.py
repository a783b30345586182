"""A partition under its leader: appends move the high watermark, and its listeners are told."""

from __future__ import annotations

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.partition import HighWatermarkListener, Partition
from moldau.storage.log.log import Log
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.node import batch

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
    under_test.add_listener(HighWatermarkListener(lambda: heard.append(under_test.high_watermark)))
    under_test.append(batch("a"), -1, 0, 9)
    assert not under_test.awaits_flush and heard == [1], "one alone needs no sync"
    under_test.append(batch("b"), -1, 0, 9)
    under_test.append_internal(batch("c"), 0)
    assert under_test.awaits_flush and heard == [1]
    under_test.log.flush(0)
    under_test.advance_high_watermark()
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
    again.add_listener(HighWatermarkListener(lambda: heard.append(again.high_watermark)))
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
    under_test.add_listener(HighWatermarkListener(lambda: heard.append(1)))
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


class Told:
    """Notes what a partition tells."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_log_end_offset_updated(self) -> None:
        self.events.append("log end offset")

    def on_high_watermark_updated(self) -> None:
        self.events.append("high watermark")

    def on_log_start_offset_updated(self) -> None:
        self.events.append("log start offset")

    def on_becoming_follower(self) -> None:
        self.events.append("follower")

    def on_gone(self, error: ErrorCode) -> None:
        self.events.append(error.name)

    def take(self) -> list[str]:
        taken, self.events = self.events, []
        return taken


def test_listeners_are_told_what_moved_in_the_order_in_which_it_did() -> None:
    under_test, told = partition(), Told()
    under_test.add_listener(told)
    under_test.append(batch("a", "b"), -1, 0, 9)
    assert told.take() == ["log end offset", "high watermark"]
    assert under_test.delete_records_before(1) is ErrorCode.NONE
    assert told.take() == ["log start offset"]
    under_test.become_follower(2, EPOCH + 1)
    under_test.become_follower(3, EPOCH + 2)
    assert told.take() == ["follower"], "the second time it led no more"
    under_test.notify_removed(ErrorCode.KAFKA_STORAGE_ERROR)
    under_test.notify_removed()
    assert told.take() == ["KAFKA_STORAGE_ERROR"], "nothing comes after that"


def test_a_follower_tells_of_the_high_watermark_alone() -> None:
    under_test, told = partition(), Told()
    under_test.become_follower(2, EPOCH + 1)
    under_test.add_listener(told)
    under_test.append_fetched(batch("a", "b"), 1, 0, 0)
    assert told.take() == ["high watermark"]


def test_a_leader_tells_of_its_followers_log_starts_and_of_another_in_sync_set() -> None:
    under_test, told = partition(), Told()
    under_test.become_leader(1, EPOCH + 1, (1, 2), replicas=(1, 2), partition_epoch=3)
    under_test.add_listener(told)
    under_test.note_follower_fetch(2, 0, 0, 9, now_ms=0)
    assert told.take() == ["log start offset"]
    under_test.note_follower_fetch(2, 0, 0, 9, now_ms=0)
    assert told.take() == []
    under_test.become_leader(1, EPOCH + 1, (1,), replicas=(1, 2), partition_epoch=4)
    assert told.take() == ["log start offset"]


def test_a_listener_may_leave_while_it_is_told_and_the_others_are_told_all_the_same() -> None:
    under_test = partition()
    heard: list[int] = []

    def once() -> None:
        heard.append(under_test.high_watermark)
        under_test.remove_listener(leaving)

    leaving = HighWatermarkListener(once)
    under_test.add_listener(leaving)
    under_test.add_listener(HighWatermarkListener(lambda: heard.append(-under_test.high_watermark)))
    for value in "abc":
        under_test.append(batch(value), -1, 0, 9)
    assert heard == [1, -1, -2, -3]


def test_a_follower_forgets_the_transactions_whose_end_is_committed() -> None:
    """Nothing asks a follower for its last stable offset, and its leader's transactions are without number."""
    follower = partition()
    follower.become_follower(2, EPOCH + 1)
    for number in range(50):
        record = Record(value=b"x", timestamp=1000)
        opened = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
        ended = end_transaction_marker(
            commits=True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=1000
        )
        for offset, each in ((2 * number, opened), (2 * number + 1, ended)):
            records = offset.to_bytes(8, "big") + each[8:]
            assert follower.append_fetched(records, offset, 0, 1000).error is ErrorCode.NONE
    assert follower.high_watermark == 99
    assert [each.last_offset for each in follower.log.producers.undecided_transactions.values()] == [99]
    follower.apply_leader_high_watermark(100)
    assert not follower.log.producers.undecided_transactions and follower.last_stable_offset == 100
