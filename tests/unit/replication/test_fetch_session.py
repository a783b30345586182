"""A client's fetch session from its opening over news and silence to its end."""

from __future__ import annotations

from itertools import count

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from moldau.replication.fetch_session import FetchContext, FetchSessions

NAMES, IDS = 12, 13


def sessions(sessions_max: int = 10) -> FetchSessions:
    ids = count(100)
    return FetchSessions(sessions_max, eviction_ms=1000, random_id=lambda: next(ids))


def fetch(session_id: int, epoch: int, *indexes: int, forgotten: tuple[int, ...] = (), offset: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=100) for i in indexes],
            )
        ],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))],
    )


def indexes_of(context: FetchContext) -> list[int]:
    return [index for (_, index), _ in context.wanted]


def test_a_client_without_a_session_gets_what_it_asks_for_and_no_session() -> None:
    context = sessions().open(fetch(0, -1, 0, 1), NAMES, now_ms=0)
    assert indexes_of(context) == [0, 1]
    assert context.session is None and not context.is_incremental


def test_a_session_remembers_partitions_between_fetches() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0, 1), NAMES, now_ms=0)
    assert opened.session is not None and not opened.is_incremental
    following = all_sessions.open(fetch(opened.session.id, 1), NAMES, now_ms=1)
    assert following.is_incremental
    assert indexes_of(following) == [0, 1]


def test_a_session_takes_changes_and_forgets_what_it_is_told_to() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0, 1), NAMES, now_ms=0)
    assert opened.session is not None
    changed = all_sessions.open(fetch(opened.session.id, 1, 1, 2, forgotten=(0,), offset=9), NAMES, now_ms=1)
    assert [(index, wish.fetch_offset) for (_, index), wish in changed.wanted] == [(1, 9), (2, 9)]


def test_a_full_fetch_forgets_nothing_of_what_it_lists() -> None:
    for is_follower in (False, True):
        opened = sessions().open(fetch(0, 0, 0, 1, forgotten=(1,)), NAMES, 0, is_follower=is_follower)
        assert indexes_of(opened) == [0, 1]
        assert opened.session is not None
        assert [index for _, index in opened.session.partitions] == [0, 1]


def test_a_wrong_epoch_and_an_unknown_id_make_the_client_start_over() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=0)
    assert opened.session is not None
    repeated = all_sessions.open(fetch(opened.session.id, 2), NAMES, now_ms=1)
    assert repeated.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = all_sessions.open(fetch(7, 1), NAMES, now_ms=1)
    assert unknown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=0)
    assert opened.session is not None
    mixed = all_sessions.open(fetch(opened.session.id, 1), IDS, now_ms=1)
    assert mixed.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_ends_the_session() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=0)
    assert opened.session is not None
    all_sessions.open(fetch(opened.session.id, -1, 0), NAMES, now_ms=1)
    assert len(all_sessions) == 0


def test_the_epoch_wraps_to_one() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=0)
    assert opened.session is not None
    opened.session.epoch = 0x7FFFFFFF
    all_sessions.open(fetch(opened.session.id, 0x7FFFFFFF), NAMES, now_ms=1)
    assert opened.session.epoch == 1


def test_without_room_a_client_is_served_without_a_session_until_an_old_one_may_go() -> None:
    all_sessions = sessions(sessions_max=1)
    all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=0)
    refused = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=999)
    assert refused.session is None and indexes_of(refused) == [0]
    taken = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=1000)
    assert taken.session is not None and len(all_sessions) == 1


def test_only_news_is_told() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0), NAMES, now_ms=0)
    assert opened.session is not None
    cached = opened.session.partitions["t", 0]

    def data(high_watermark: int, error: ErrorCode = ErrorCode.NONE, records: bytes = b"") -> PartitionData:
        return PartitionData(
            partition_index=0, high_watermark=high_watermark, log_start_offset=0, error_code=error, records=records
        )

    assert cached.has_changed_answer(data(5))
    assert not cached.has_changed_answer(data(5))
    assert cached.has_changed_answer(data(5, records=b"batch"))
    assert cached.has_changed_answer(data(6))
    assert cached.has_changed_answer(data(6, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert cached.has_changed_answer(data(6)), "that an error is over is news"
    assert not cached.has_changed_answer(data(6))


def test_what_comes_with_a_diverging_epoch_is_told_once_more() -> None:
    """The follower cuts its log first, and takes nothing else of that answer."""
    opened = sessions().open(fetch(0, 0, 0), NAMES, now_ms=0)
    assert opened.session is not None
    cached = opened.session.partitions["t", 0]
    diverging = PartitionData(
        partition_index=0,
        high_watermark=5,
        log_start_offset=0,
        diverging_epoch=EpochEndOffset(epoch=1, end_offset=5),
        records=b"",
    )
    assert cached.has_changed_answer(diverging)
    agreeing = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"")
    assert cached.has_changed_answer(agreeing), "or the follower would not know that all of it is committed"
    assert not cached.has_changed_answer(agreeing)


def test_a_follower_in_a_new_leader_epoch_is_told_all_again() -> None:
    """The answer on its way when it heard of the epoch is one that it drops."""
    all_sessions = sessions()
    request = fetch(0, 0, 0)
    request.topics[0].partitions[0].current_leader_epoch = 5
    opened = all_sessions.open(request, NAMES, now_ms=0)
    assert opened.session is not None
    cached = opened.session.partitions["t", 0]
    data = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"")
    assert cached.has_changed_answer(data)
    for leader_epoch, is_news in ((5, False), (6, True)):
        request = fetch(opened.session.id, opened.session.epoch, 0)
        request.topics[0].partitions[0].current_leader_epoch = leader_epoch
        all_sessions.open(request, NAMES, now_ms=0)
        assert cached.has_changed_answer(data) == is_news


def test_a_partition_that_gave_data_goes_to_the_end_of_the_line() -> None:
    all_sessions = sessions()
    opened = all_sessions.open(fetch(0, 0, 0, 1, 2), NAMES, now_ms=0)
    assert opened.session is not None
    opened.session.move_to_end(("t", 0))
    following = all_sessions.open(fetch(opened.session.id, 1), NAMES, now_ms=1)
    assert indexes_of(following) == [1, 2, 0]
