"""The high watermark of a leader with followers, and who may join or must leave."""

from __future__ import annotations

from moldau.replication.leadership import UNKNOWN_OFFSET, FollowerProgress, InSyncSet, Leadership

LAG_MS = 100


def led(isr: tuple[int, ...], *, replicas: tuple[int, ...] = (1, 2, 3), start: int = 0) -> Leadership:
    return Leadership(1, replicas, InSyncSet(isr, 5), start, now_ms=0)


def fetched(under_test: Leadership, replica: int, offset: int, end_offset: int = 10, now_ms: int = 0) -> None:
    under_test.followers[replica].note_fetch(offset, end_offset, 0, 7, now_ms)


def test_nothing_is_committed_before_everybody_in_the_set_was_heard_of() -> None:
    under_test = led((1, 2, 3))
    fetched(under_test, 2, 10)
    assert under_test.high_watermark(10) == -1
    fetched(under_test, 3, 4)
    assert under_test.high_watermark(10) == 4


def test_those_outside_the_set_do_not_count() -> None:
    under_test = led((1, 2))
    fetched(under_test, 2, 8)
    assert under_test.high_watermark(10) == 8


def test_a_leader_alone_in_the_set_commits_alone() -> None:
    assert led((1,)).high_watermark(10) == 10


def test_one_that_was_proposed_counts_as_long_as_nobody_knows() -> None:
    under_test = led((1, 2))
    fetched(under_test, 2, 9)
    fetched(under_test, 3, 6)
    under_test.apply_in_sync_set(under_test.in_sync.with_proposal((1, 2, 3)))
    assert under_test.high_watermark(10) == 6
    under_test.apply_in_sync_set(under_test.in_sync.without_proposal())
    assert under_test.high_watermark(10) == 9


def test_one_that_is_to_leave_counts_until_that_is_confirmed() -> None:
    under_test = led((1, 2, 3))
    fetched(under_test, 2, 9)
    fetched(under_test, 3, 6)
    under_test.apply_in_sync_set(under_test.in_sync.with_proposal((1, 2)))
    assert under_test.high_watermark(10) == 6
    under_test.apply_in_sync_set(InSyncSet((1, 2), 6))
    assert under_test.high_watermark(10) == 9


def test_commits_wait_for_one_that_keeps_up_so_that_it_can_join() -> None:
    """Else a leader that commits alone is always ahead of it by a fetch."""
    under_test = led((1,))
    fetched(under_test, 2, 9)
    under_test.set_joining(2, True)
    assert under_test.high_watermark(10) == 9
    assert under_test.in_sync_set_with(2, 9) == (1, 2)
    under_test.set_joining(2, False)
    assert under_test.high_watermark(10) == 10


def test_membership_ends_the_waiting_of_a_join() -> None:
    under_test = led((1,))
    fetched(under_test, 2, 9)
    under_test.set_joining(2, True)
    under_test.apply_in_sync_set(InSyncSet((1, 2), 6))
    under_test.apply_in_sync_set(InSyncSet((1,), 7))
    assert under_test.high_watermark(10) == 10, "it left the set, and was not heard of since"


def test_a_member_that_is_no_replica_known_here_stops_commits() -> None:
    assert led((1, 4)).high_watermark(10) == -1


def test_to_join_is_to_have_what_is_committed_and_what_came_before_the_term() -> None:
    under_test = led((1, 2), start=5)
    fetched(under_test, 3, 4)
    assert under_test.in_sync_set_with(3, 3) is None, "not yet at the start of the term"
    fetched(under_test, 3, 5)
    assert under_test.in_sync_set_with(3, 6) is None, "not yet at the high watermark"
    assert under_test.in_sync_set_with(3, 5) == (1, 2, 3)


def test_one_change_at_a_time() -> None:
    under_test = led((1, 2))
    fetched(under_test, 3, 10)
    under_test.apply_in_sync_set(under_test.in_sync.with_proposal((1,)))
    assert under_test.in_sync_set_with(3, 0) is None
    assert under_test.in_sync_set_without_lagging(10, LAG_MS, 10_000) is None


def test_members_and_strangers_do_not_join() -> None:
    under_test = led((1, 2))
    fetched(under_test, 2, 10)
    assert under_test.in_sync_set_with(2, 0) is None and under_test.in_sync_set_with(9, 0) is None


def test_laggards_leave_and_the_leader_never_does() -> None:
    under_test = led((1, 2, 3))
    fetched(under_test, 2, 10, now_ms=1000)
    assert under_test.in_sync_set_without_lagging(10, LAG_MS, 1000) == (1, 2)
    assert under_test.in_sync_set_without_lagging(11, LAG_MS, 5000) == (1,)
    assert led((1,)).in_sync_set_without_lagging(10, LAG_MS, 5000) is None


def test_a_reassignment_keeps_what_is_known_of_those_who_stay() -> None:
    under_test = led((1, 2))
    fetched(under_test, 2, 8)
    under_test.apply_reassignment((1, 2, 4), 50)
    assert sorted(under_test.followers) == [2, 4]
    assert under_test.high_watermark(10) == 8
    assert under_test.followers[4].end_offset == -1


def after_fetch(follower: FollowerProgress, offset: int, leader_end_offset: int, now_ms: int) -> FollowerProgress:
    follower.note_fetch(offset, leader_end_offset, 0, 7, now_ms)
    return follower


def test_a_member_of_the_set_has_a_whole_lag_time_to_report_to_a_new_leader() -> None:
    follower = FollowerProgress(1000, is_in_sync=True)
    assert follower.end_offset == UNKNOWN_OFFSET
    assert not follower.has_lagged_longer_than(5, LAG_MS, 1000 + LAG_MS)
    assert follower.has_lagged_longer_than(5, LAG_MS, 1001 + LAG_MS)


def test_one_outside_the_set_lags_from_the_beginning_even_where_the_clock_began_just_now() -> None:
    assert FollowerProgress(0, is_in_sync=False).has_lagged_longer_than(5, LAG_MS, 0)


def test_it_is_caught_up_when_it_asks_for_the_end() -> None:
    follower = after_fetch(FollowerProgress(0, is_in_sync=True), 5, 5, 500)
    assert not follower.has_lagged_longer_than(9, LAG_MS, 600)
    assert follower.has_lagged_longer_than(9, LAG_MS, 601)
    assert not follower.has_lagged_longer_than(5, LAG_MS, 10_000), "there is nothing that it could lack"


def test_one_that_follows_a_growing_log_was_caught_up_at_its_last_fetch() -> None:
    follower = after_fetch(FollowerProgress(0, is_in_sync=True), 5, 9, 500)
    after_fetch(follower, 9, 20, 550)
    assert not follower.has_lagged_longer_than(20, LAG_MS, 600) and follower.has_lagged_longer_than(20, LAG_MS, 601)


def test_one_that_fetches_too_slowly_lags_though_it_fetches() -> None:
    follower = FollowerProgress(0, is_in_sync=True)
    for step in range(1, 20):
        after_fetch(follower, step, step * 10, step * 10)
    assert follower.has_lagged_longer_than(200, LAG_MS, 190)


def test_the_first_fetch_of_a_term_proves_nothing_of_the_time_before() -> None:
    follower = after_fetch(FollowerProgress(0, is_in_sync=False), 5, 9, 500)
    assert follower.has_lagged_longer_than(9, LAG_MS, 501)


def test_it_may_go_back() -> None:
    follower = after_fetch(FollowerProgress(0, is_in_sync=True), 9, 9, 500)
    assert after_fetch(follower, 3, 9, 510).end_offset == 3
