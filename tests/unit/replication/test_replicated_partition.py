"""A partition with followers: what is committed when, and what those who wait are told."""

from __future__ import annotations

from moldau.broker.purgatory.purgatory import CommitCallback, Purgatory
from moldau.protocol.errors import ErrorCode
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.node import batch
from tests.support.purgatories import ManualLoop, purgatory_of

EPOCH = 5


def replica(*, flush_messages: int = INT64_MAX) -> Partition:
    disk = SimulatedDisk("a seed")
    disk.make_directories("/t-0")
    log = Log.open(disk, "/t-0", LogConfig(flush_messages=flush_messages), now_ms=0)
    return Partition("t", bytes(16), 0, log, 0)


def leader(
    isr: tuple[int, ...] = (1, 2, 3), *, min_insync_replicas: int = 1, flush_messages: int = INT64_MAX
) -> Partition:
    made = replica(flush_messages=flush_messages)
    made.min_insync_replicas = min_insync_replicas
    made.become_leader(1, EPOCH, isr, replicas=(1, 2, 3), partition_epoch=7, now_ms=0)
    return made


def when_committed(under_test: Partition, end_offset: int, heard: list[ErrorCode]) -> None:
    """As an acks=all request waits."""
    purgatory = purgatories.setdefault(under_test, purgatory_of(ManualLoop()))
    purgatory.await_commit(under_test, CommitCallback(end_offset, heard.append))


purgatories: dict[Partition, Purgatory] = {}


def fetched(under_test: Partition, replica_id: int, offset: int) -> None:
    under_test.note_follower_fetch(replica_id, offset, 0, 9, now_ms=0)
    under_test.advance_high_watermark()


def append(under_test: Partition, heard: list[ErrorCode], *values: str) -> None:
    under_test.append(batch(*values), -1, 0, 9)
    when_committed(under_test, under_test.log.end_offset, heard)


def test_a_record_is_committed_when_everybody_in_sync_has_it() -> None:
    heard: list[ErrorCode] = []
    under_test = leader()
    append(under_test, heard, "a", "b")
    fetched(under_test, 2, 2)
    fetched(under_test, 3, 1)
    assert under_test.high_watermark == 1 and heard == []
    fetched(under_test, 3, 2)
    assert under_test.high_watermark == 2 and heard == [ErrorCode.NONE]


def test_a_follower_that_goes_back_takes_no_commit_back() -> None:
    heard: list[ErrorCode] = []
    under_test = leader((1, 2))
    append(under_test, heard, "a")
    fetched(under_test, 2, 1)
    fetched(under_test, 2, 0)
    assert under_test.high_watermark == 1


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    """KIP-966: what the last one has is lost with it."""
    heard: list[ErrorCode] = []
    under_test = leader((1, 2), min_insync_replicas=2)
    append(under_test, heard, "a")
    under_test.propose_in_sync_set((1,))
    under_test.confirm_in_sync_set((1,), 8)
    assert under_test.append(batch("b"), 1, 0, 9).error is ErrorCode.NONE, "acks=1 asks for nobody else"
    assert under_test.append(batch("b"), -1, 0, 9).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert under_test.high_watermark == 0 and heard == []
    fetched(under_test, 2, 2)
    under_test.propose_in_sync_set((1, 2))
    under_test.confirm_in_sync_set((1, 2), 9)
    assert under_test.high_watermark == 2 and heard == [ErrorCode.NONE]


def test_a_smaller_minimum_commits_at_the_next_look() -> None:
    under_test = leader((1,), min_insync_replicas=2)
    under_test.append(batch("a"), 1, 0, 9)
    assert under_test.high_watermark == 0
    under_test.min_insync_replicas = 1
    under_test.advance_high_watermark()
    assert under_test.high_watermark == 1


def test_a_wait_that_begins_after_the_set_shrank_is_told_so() -> None:
    heard: list[ErrorCode] = []
    under_test = leader((1, 2), min_insync_replicas=2)
    under_test.append(batch("a"), -1, 0, 9)
    fetched(under_test, 2, 1)
    under_test.propose_in_sync_set((1,))
    under_test.confirm_in_sync_set((1,), 8)
    when_committed(under_test, 1, heard)
    assert heard == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_the_minimum_counts_what_is_confirmed_not_what_is_proposed() -> None:
    under_test = leader((1, 2), min_insync_replicas=2)
    under_test.propose_in_sync_set((1,))
    assert under_test.append(batch("a"), -1, 0, 9).error is ErrorCode.NONE
    under_test.confirm_in_sync_set((1,), 8)
    under_test.propose_in_sync_set((1, 2))
    assert under_test.append(batch("a"), -1, 0, 9).error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_leader_that_follows_sends_those_who_wait_away() -> None:
    heard: list[ErrorCode] = []
    under_test = leader()
    append(under_test, heard, "a")
    under_test.become_follower(2, EPOCH + 1)
    assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert under_test.append(batch("a"), 1, 0, 9).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_that_goes_tells_why() -> None:
    heard: list[ErrorCode] = []
    under_test = leader()
    append(under_test, heard, "a")
    under_test.notify_removed(ErrorCode.KAFKA_STORAGE_ERROR)
    assert heard == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_new_term_of_the_same_leader_knows_nobody_and_forgets_no_wait() -> None:
    heard: list[ErrorCode] = []
    under_test = leader()
    append(under_test, heard, "a")
    fetched(under_test, 2, 1)
    under_test.become_leader(1, EPOCH + 1, (1, 2), replicas=(1, 2, 3), partition_epoch=8)
    assert under_test.high_watermark == 0 and heard == []
    fetched(under_test, 2, 1)
    assert heard == [ErrorCode.NONE]


def test_a_new_leader_keeps_its_high_watermark_until_it_hears_of_all() -> None:
    under_test = replica()
    under_test.become_follower(2, EPOCH)
    under_test.append_fetched(batch("a", "b", "c"), 1, 0, 0)
    assert under_test.high_watermark == 1
    under_test.become_leader(1, EPOCH + 1, (1, 3), replicas=(1, 2, 3), partition_epoch=8)
    assert under_test.high_watermark == 1
    fetched(under_test, 3, 3)
    assert under_test.high_watermark == 3


def test_a_follower_takes_the_high_watermark_as_far_as_it_has_records() -> None:
    under_test = replica()
    under_test.become_follower(2, EPOCH)
    under_test.append_fetched(batch("a", "b"), 9, 0, 0)
    assert under_test.high_watermark == 2
    under_test.append_fetched(b"", 1, 0, 0)
    assert under_test.high_watermark == 2, "the leader's may lag"


def test_a_truncation_takes_the_high_watermark_along_and_a_later_start_too() -> None:
    under_test = replica()
    under_test.become_follower(2, EPOCH)
    under_test.append_fetched(batch("a", "b"), 2, 0, 0)
    under_test.log.truncate_to(1, 0)
    under_test.adapt_to_truncation()
    assert under_test.high_watermark <= 1
    under_test.log.truncate_fully_and_start_at(50, 0)
    under_test.adapt_to_truncation()
    assert under_test.high_watermark == 50, "what is before the start is nobody's to read"


def test_a_follower_follows_the_leaders_log_start() -> None:
    under_test = replica()
    under_test.become_follower(2, EPOCH)
    under_test.append_fetched(batch("a", "b"), 2, 1, 0)
    assert under_test.log.log_start_offset == 1
    under_test.append_fetched(b"", 2, 0, 0)
    assert under_test.log.log_start_offset == 1


def test_the_controllers_answer_may_overtake_the_metadata() -> None:
    under_test = leader((1, 2))
    under_test.propose_in_sync_set((1, 2, 3))
    under_test.confirm_in_sync_set((1, 2, 3), 8)
    under_test.become_leader(1, EPOCH, (1, 2), replicas=(1, 2, 3), partition_epoch=7)
    assert under_test.isr == (1, 2, 3), "older news"
    under_test.become_leader(1, EPOCH, (1, 2, 3), replicas=(1, 2), partition_epoch=8)
    assert under_test.leadership is not None and set(under_test.leadership.followers) == {2}


def test_metadata_overtakes_a_proposal() -> None:
    under_test = leader((1, 2, 3))
    under_test.propose_in_sync_set((1, 2))
    under_test.become_leader(1, EPOCH, (1, 3), replicas=(1, 2, 3), partition_epoch=8)
    assert under_test.leadership is not None and under_test.leadership.in_sync.proposed is None
    under_test.confirm_in_sync_set((1, 2), 8)
    assert under_test.isr == (1, 3)


def test_metadata_of_another_kind_leaves_a_proposal_under_way() -> None:
    under_test = leader((1, 2))
    under_test.propose_in_sync_set((1, 2, 3))
    under_test.become_leader(1, EPOCH, (1, 2), replicas=(1, 2, 3), partition_epoch=7)
    assert under_test.leadership is not None and under_test.leadership.in_sync.proposed == (1, 2, 3)


def test_what_flush_messages_asks_for_is_part_of_being_committed() -> None:
    heard: list[ErrorCode] = []
    under_test = leader((1, 2), flush_messages=1)
    append(under_test, heard, "a")
    fetched(under_test, 2, 1)
    assert under_test.high_watermark == 0
    under_test.log.flush(0)
    under_test.advance_high_watermark()
    assert heard == [ErrorCode.NONE]
