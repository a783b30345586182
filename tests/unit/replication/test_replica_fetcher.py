"""A follower against its leader's own handler: catching up, truncating, looking up, giving up, beginning anew."""

from __future__ import annotations

import pytest

from moldau.broker.runtime.pending import Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import (
    WAIT_MS_MAX_WHILE_FLUSHING,
    FlushLog,
    LogWarning,
    LookUpLeaderOffsets,
    RestartLogAt,
    TruncateLog,
)
from tests.support.node import batch
from tests.support.replica_pair import LEADER, TOPIC_ID, FollowerSide, LeaderSide, replica


def led(*values: str, partition: Partition | None = None, epoch: int = 5) -> tuple[Partition, LeaderSide]:
    partition = partition or replica()
    side = LeaderSide(partition, epoch=epoch)
    for value in values:
        partition.append(batch(value), 1, 0, 9)
    return partition, side


def grown(*epochs: tuple[int, int]) -> Partition:
    """A replica that has led in each epoch for so many records."""
    partition = replica()
    for epoch, count in epochs:
        partition.become_leader(LEADER, epoch, (LEADER,))
        for number in range(count):
            partition.append(batch(f"{epoch}.{number}"), 1, 0, 9)
    return partition


def test_a_follower_gets_everything_and_the_high_watermark_follows() -> None:
    ours, leader = led("a", "b", "c")
    theirs = replica()
    follower = FollowerSide(theirs)
    follower.catch_up(leader)
    assert theirs.log.end_offset == 3
    assert ours.high_watermark == theirs.high_watermark == 3


def test_a_second_request_names_only_what_has_changed() -> None:
    partitions = [replica(index) for index in range(5)]
    leader = LeaderSide(*partitions)
    follower = FollowerSide(*(replica(index) for index in range(5)))
    follower.catch_up(leader)
    partitions[3].append(batch("a"), 1, 0, 9)
    follower.fetch_from(leader)
    assert follower.requests[-1].topics == []
    follower.request()
    assert [each.partition for topic in follower.requests[-1].topics for each in topic.partitions] == [3]


def test_the_leader_looks_only_at_what_has_news() -> None:
    partitions = [replica(index) for index in range(5)]
    leader = LeaderSide(*partitions)
    follower = FollowerSide(*(replica(index) for index in range(5)))
    follower.catch_up(leader)
    (session,) = leader._broker.fetch_sessions._sessions.values()
    assert session.wanted_partitions() == []
    partitions[3].append(batch("a"), 1, 0, 9)
    assert [key[1] for key, _ in session.wanted_partitions()] == [3]


def test_an_append_wakes_a_fetch_that_waits() -> None:
    ours, leader = led("a")
    follower = FollowerSide(replica())
    follower.catch_up(leader)
    request = follower.request()
    assert request is not None
    answer = leader.handle(request)
    assert isinstance(answer, Pending)
    heard: list[FetchResponse] = []
    answer.listen(heard.append)
    ours.append(batch("b"), 1, 0, 9)
    assert heard and heard[0].responses[0].partitions[0].records


def test_a_follower_that_asks_for_nothing_new_still_keeps_up() -> None:
    """Its requests stand for all partitions of the session; what it gave up, they do not."""
    ours, leader = led("a")
    theirs = replica()
    follower = FollowerSide(theirs)
    follower.catch_up(leader)
    leader.now_ms = 50_000
    follower.catch_up(leader)
    assert ours.leadership is not None
    progress = ours.leadership.followers[2]
    ours.append(batch("b"), 1, 0, 9)
    assert not progress.has_lagged_longer_than(2, 30_000, 80_000) and progress.has_lagged_longer_than(2, 30_000, 80_001)
    follower.catch_up(leader)
    follower.machine.unfollow(theirs)
    follower.machine.follow(replica(1))
    leader.now_ms = 200_000
    follower.catch_up(leader)
    ours.append(batch("c"), 1, 0, 9)
    assert progress.has_lagged_longer_than(3, 30_000, 100_000), "its requests say nothing of this partition any more"


def test_logs_that_parted_meet_after_several_rounds() -> None:
    """KIP-101: each round goes back to the largest epoch that both may have."""
    ours = grown((1, 4), (4, 2), (7, 3))
    theirs = grown((1, 2), (2, 3), (3, 2), (5, 4))
    leader = LeaderSide(ours, epoch=8)
    follower = FollowerSide(theirs, epoch=8)
    follower.catch_up(leader)
    assert theirs.log.end_offset == ours.log.end_offset == 9
    assert theirs.log.epochs.entries == [entry for entry in ours.log.epochs.entries if entry.epoch != 8]
    assert [effect.offset for effect in follower.effects if isinstance(effect, TruncateLog)] == [6, 2]


def test_records_of_an_epoch_that_the_leader_has_none_of_go() -> None:
    ours, theirs = grown((1, 2)), grown((1, 2), (2, 3))
    leader = LeaderSide(ours, epoch=3)
    FollowerSide(theirs, epoch=3).catch_up(leader)
    assert theirs.log.end_offset == 2


def test_a_follower_whose_offset_the_leader_has_deleted_starts_where_the_leader_does() -> None:
    ours, leader = led(*"abcdef")
    theirs = replica()
    follower = FollowerSide(theirs)
    follower.catch_up(leader)
    theirs.log.truncate_to(1, 0)
    ours.log.truncate_fully_and_start_at(50, 0)
    ours.high_watermark = 50
    ours.append(batch("g"), 1, 0, 9)
    theirs.become_follower(LEADER, 5)
    follower.machine.follow(theirs)
    follower.catch_up(leader)
    assert any(isinstance(effect, LookUpLeaderOffsets) for effect in follower.effects)
    assert any(isinstance(effect, RestartLogAt) for effect in follower.effects)
    assert (theirs.log.log_start_offset, theirs.log.end_offset) == (50, 51)
    assert theirs.high_watermark >= 50


def test_a_follower_past_the_end_of_an_unclean_leader_cuts_and_says_so() -> None:
    ours, leader = led("a")
    theirs = replica()
    theirs.become_follower(LEADER, 5)
    theirs.append_fetched(batch("a", "b", "c"), 0, 0, 0)
    theirs.log.epochs.clear()  # a log from before there were epochs
    follower = FollowerSide(theirs)
    follower.catch_up(leader)
    assert any(isinstance(effect, LogWarning) for effect in follower.effects)
    assert theirs.log.end_offset <= ours.log.end_offset


def test_a_follower_begins_with_the_batch_in_the_middle_of_which_its_leader_does() -> None:
    """Records were deleted up to the middle of a batch: it comes whole, and was refused for ever (swarm, seed 4)."""
    ours, leader = led("a")
    ours.append(batch("b", "c", "d"), 1, 0, 9)
    ours.high_watermark = 4
    ours.log.advance_log_start(2, 4)
    theirs = replica()
    theirs.log.truncate_fully_and_start_at(2, 0)
    theirs.adapt_to_truncation()
    FollowerSide(theirs).catch_up(leader)
    assert (theirs.log.log_start_offset, theirs.log.end_offset) == (2, 4)
    assert theirs.log.segments[0].base_offset == 1


def test_an_empty_follower_begins_with_no_batch_that_it_cannot_append() -> None:
    """Its log would begin before its high watermark (seed 1335 of the replicas)."""
    damaged = bytearray(batch("a", "b"))
    damaged[-1] ^= 1
    later = bytearray(batch("a", "b"))
    later[12:16] = (9).to_bytes(4, "big")  # the leader epoch, which no checksum covers
    for records in (damaged, later, batch("a", "b")[:-1]):
        theirs = replica()
        theirs.log.truncate_fully_and_start_at(1, 0)
        theirs.adapt_to_truncation()
        follower = FollowerSide(theirs)
        follower.request()
        follower.machine.on_response(answer_of(high_watermark=2, records=bytes(records)), 0, 0)
        assert (theirs.log.log_start_offset, theirs.log.end_offset, theirs.high_watermark) == (1, 1, 1)


def test_a_follower_without_records_is_not_taken_back_before_its_log_start_offset() -> None:
    """A crash brought back an earlier leader epoch, of which the leader has nothing (seed 160 of the replicas)."""
    ours, leader = led(partition=grown((3, 8)))
    ours.high_watermark = 8
    ours.log.advance_log_start(4, 8)
    theirs = grown((1, 6))
    theirs.high_watermark = 6
    theirs.log.advance_log_start(6, 6)
    follower = FollowerSide(theirs)
    follower.catch_up(leader)
    assert not any(isinstance(effect, TruncateLog) for effect in follower.effects)
    assert (theirs.log.log_start_offset, theirs.log.end_offset, theirs.high_watermark) == (6, 8, 8)


def test_a_cut_below_the_high_watermark_is_told() -> None:
    """KAFKA-19474: an unclean leader took over, and what was committed is gone."""
    theirs = grown((1, 3))
    _, leader = led(partition=grown((1, 1), (2, 1)))
    follower = FollowerSide(theirs)
    theirs.high_watermark = 3
    follower.catch_up(leader)
    assert [type(effect) for effect in follower.effects if not isinstance(effect, FlushLog)] == [
        LogWarning,
        TruncateLog,
    ]


def test_the_leaders_log_start_moves_the_followers() -> None:
    ours, leader = led(*"abc")
    theirs = replica()
    follower = FollowerSide(theirs)
    follower.catch_up(leader)
    ours.log.advance_log_start(2, ours.high_watermark)
    leader.now_ms = 5000
    follower.catch_up(leader)
    assert theirs.log.log_start_offset == 2


def test_what_flush_messages_asks_for_is_flushed_before_the_next_fetch_counts_it() -> None:
    ours, leader = led("a")
    theirs = replica(flush_messages=1)
    follower = FollowerSide(theirs)
    follower.fetch_from(leader)
    assert any(isinstance(effect, FlushLog) for effect in follower.effects)
    assert theirs.log.synced_end_offset == 1
    follower.catch_up(leader)
    assert ours.high_watermark == 1


def test_what_was_taken_before_a_batch_that_was_refused_is_flushed_before_the_next_fetch_counts_it() -> None:
    damaged = bytearray(batch("b"))
    damaged[:8] = (1).to_bytes(8, "big")
    damaged[-1] ^= 1
    theirs = replica(flush_messages=1)
    follower = FollowerSide(theirs)
    follower.request()
    effects = follower.machine.on_response(answer_of(high_watermark=2, records=batch("a") + bytes(damaged)), 0, 0)
    assert [type(effect) for effect in effects] == [LogWarning, FlushLog]
    assert (theirs.log.end_offset, theirs.log.synced_end_offset) == (1, 0)
    follower.now_ms = 100_000
    assert follower.request() is None, "the leader would take its offset for what is durable here"
    theirs.log.flush(0)
    follower.machine.on_flushed(theirs, theirs.leader_epoch)
    request = follower.request()
    assert request is not None
    assert request.topics[0].partitions[0].fetch_offset == 1


def test_while_it_flushes_it_asks_for_other_partitions_only() -> None:
    leader = LeaderSide(first := replica(0), replica(1))
    first.append(batch("a"), 1, 0, 9)
    theirs = replica(0, flush_messages=1)
    follower = FollowerSide(theirs, replica(1))
    request = follower.request()
    assert request is not None
    answer = leader.handle(request)
    assert isinstance(answer, FetchResponse)
    (effect,) = follower.machine.on_response(answer, 0, 0)
    assert isinstance(effect, FlushLog)
    request = follower.request()
    assert request is not None
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(TOPIC_ID, [0])]
    assert request.max_wait_ms == WAIT_MS_MAX_WHILE_FLUSHING, (
        "what is flushed meanwhile is confirmed by the next request only"
    )
    leader.handle(request)
    assert first.high_watermark == 0
    follower.machine.on_response(FetchResponse(session_id=answer.session_id), 0, 0)
    request = follower.request()
    assert request is not None
    assert request.max_wait_ms == WAIT_MS_MAX_WHILE_FLUSHING
    follower.machine.on_response(FetchResponse(session_id=answer.session_id), 0, 0)
    theirs.log.flush(0)
    follower.machine.on_flushed(theirs, theirs.leader_epoch)
    request = follower.request()
    assert request is not None
    assert request.max_wait_ms == 500


def answer_of(**fields: object) -> FetchResponse:
    data = PartitionData(partition_index=0, **fields)  # type: ignore[arg-type]
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])


def test_an_answer_of_an_earlier_epoch_is_not_taken() -> None:
    theirs = replica()
    follower = FollowerSide(theirs)
    follower.request()
    theirs.become_follower(3, 6)
    follower.machine.follow(theirs)
    follower.answered(answer_of(high_watermark=1, records=batch("a")))
    assert theirs.log.end_offset == 0


def test_an_answer_for_another_offset_is_not_taken() -> None:
    theirs = replica()
    follower = FollowerSide(theirs)
    follower.request()
    theirs.append_fetched(batch("a"), 0, 0, 0)
    follower.answered(answer_of(high_watermark=1, records=batch("b")))
    assert theirs.log.end_offset == 1


def test_a_diverging_answer_brings_neither_records_nor_a_high_watermark() -> None:
    ours, theirs = grown((1, 2), (4, 5)), grown((1, 2), (2, 3))
    theirs.high_watermark = 2
    leader = LeaderSide(ours, epoch=5)
    ours.high_watermark = 7
    follower = FollowerSide(theirs)
    request = follower.request()
    assert request is not None
    answer = leader.handle(request)
    assert isinstance(answer, FetchResponse)
    (effect,) = follower.machine.on_response(answer, 0, 0)
    assert isinstance(effect, TruncateLog) and theirs.high_watermark == 2
    assert follower.request() is None, "nothing is fetched before it is truncated"


def test_a_truncation_of_an_earlier_epoch_lets_nothing_go_on() -> None:
    theirs = grown((1, 2), (2, 3))
    follower = FollowerSide(theirs)
    follower.request()
    answer = answer_of(high_watermark=0)
    answer.responses[0].partitions[0].diverging_epoch = type(
        "Diverging", (), {"epoch": 1, "end_offset": 2}
    )()  # as the codec gives it
    list(follower.machine.on_response(answer, 0, 0))
    theirs.become_follower(LEADER, 6)
    follower.machine.follow(theirs)
    follower.machine.on_truncated(theirs, 5)
    assert follower.request() is not None


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_has_not_heard_of_its_election_is_asked_again_soon_then_later(error: ErrorCode) -> None:
    follower = FollowerSide(replica())
    waited = []
    for _ in range(9):
        assert follower.request() is not None
        follower.answered(answer_of(error_code=error, high_watermark=-1))
        assert follower.request() is None
        deadline_ms = follower.machine.next_deadline_ms()
        assert deadline_ms is not None
        waited.append(deadline_ms - follower.now_ms)
        follower.now_ms = deadline_ms
    assert waited == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]


def test_no_answer_loses_the_session_and_leaves_the_leader_alone_for_a_while() -> None:
    _, leader = led("a")
    follower = FollowerSide(theirs := replica())
    follower.catch_up(leader)
    follower.request()
    follower.machine.on_request_failed(0)
    assert follower.request() is None and follower.machine.retry_delay_ms(0) == 20
    follower.now_ms = 20
    follower.catch_up(leader)
    assert follower.requests[-2].session_epoch == 0 or follower.requests[-1].session_epoch == 0
    assert theirs.log.end_offset == 1


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_lost_session_begins_anew_with_everything(error: ErrorCode) -> None:
    _, leader = led("a")
    follower = FollowerSide(replica())
    follower.catch_up(leader)
    follower.request()
    follower.answered(FetchResponse(error_code=error))
    request = follower.request()
    assert request is not None and (request.session_id, request.session_epoch) == (0, 0)
    assert [each.fetch_offset for each in request.topics[0].partitions] == [1]


def test_a_leader_without_room_for_sessions_is_told_everything_each_time() -> None:
    ours, leader = led("a")
    leader._broker.fetch_sessions._sessions_max = 0
    follower = FollowerSide(theirs := replica())
    assert follower.fetch_from(leader)
    ours.append(batch("b"), 1, 0, 9)
    assert follower.fetch_from(leader)
    assert follower.requests[-1].session_epoch == 0 and theirs.log.end_offset == 2


def test_damaged_batches_are_not_taken_and_asked_for_again_later() -> None:
    damaged = bytearray(batch("a"))
    damaged[-1] ^= 1
    follower = FollowerSide(theirs := replica())
    follower.request()
    follower.answered(answer_of(high_watermark=1, records=bytes(damaged)))
    assert theirs.log.end_offset == 0 and isinstance(follower.effects[-1], LogWarning)
    assert follower.request() is None and follower.machine.next_deadline_ms() == 1000


def test_a_partition_given_up_is_forgotten_and_its_answer_ignored() -> None:
    _, leader = led("a")
    theirs, other = replica(), replica(1)
    follower = FollowerSide(theirs, other)
    request = follower.request()
    assert request is not None
    follower.machine.unfollow(theirs)
    answer = leader.handle(request)
    assert isinstance(answer, FetchResponse)
    follower.answered(answer)
    assert theirs.log.end_offset == 0
    follower.now_ms = 20
    request = follower.request()
    assert request is not None and request.forgotten_topics_data[0].partitions[0] == 0


def test_a_topic_made_again_under_its_name_is_another_one() -> None:
    """The leader has deleted the topic that the follower still asks for by its id."""
    ours, leader = led("a")
    follower = FollowerSide(theirs := replica())
    follower.catch_up(leader)
    leader.replicas.remove_topic("t")
    ours.notify_removed()
    again = Partition("t", bytes(16), 0, replica().log, 0)
    leader.replicas.add(again)
    follower.now_ms = 1
    follower.catch_up(leader)
    assert theirs.log.end_offset == 1
    deadline_ms = follower.machine.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms > 1


def test_a_former_incarnation_of_the_follower_is_refused() -> None:
    ours, leader = led("a")
    follower = FollowerSide(replica())
    follower.catch_up(leader)
    assert ours.leadership is not None
    ours.leadership.followers[2].broker_epoch = 100
    late = FollowerSide(theirs := replica())
    late.catch_up(leader)
    assert theirs.log.end_offset == 0
