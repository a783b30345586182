"""What a leader makes of a follower's fetches."""

from __future__ import annotations

from moldau.replication.follower_progress import UNKNOWN_OFFSET, FollowerProgress

LAG_MS = 100


def fetched(follower: FollowerProgress, offset: int, leader_end_offset: int, now_ms: int) -> FollowerProgress:
    follower.fetched(offset, leader_end_offset, 0, 7, now_ms)
    return follower


def test_a_member_of_the_set_has_a_whole_lag_time_to_report_to_a_new_leader() -> None:
    follower = FollowerProgress(1000, is_in_sync=True)
    assert follower.end_offset == UNKNOWN_OFFSET
    assert not follower.lags(5, LAG_MS, 1000 + LAG_MS)
    assert follower.lags(5, LAG_MS, 1001 + LAG_MS)


def test_one_outside_the_set_lags_from_the_beginning_even_where_the_clock_began_just_now() -> None:
    assert FollowerProgress(0, is_in_sync=False).lags(5, LAG_MS, 0)


def test_it_is_caught_up_when_it_asks_for_the_end() -> None:
    follower = fetched(FollowerProgress(0, is_in_sync=True), 5, 5, 500)
    assert not follower.lags(9, LAG_MS, 600)
    assert follower.lags(9, LAG_MS, 601)
    assert not follower.lags(5, LAG_MS, 10_000), "there is nothing that it could lack"


def test_one_that_follows_a_growing_log_was_caught_up_at_its_last_fetch() -> None:
    follower = fetched(FollowerProgress(0, is_in_sync=True), 5, 9, 500)
    fetched(follower, 9, 20, 550)
    assert not follower.lags(20, LAG_MS, 600) and follower.lags(20, LAG_MS, 601)


def test_one_that_fetches_too_slowly_lags_though_it_fetches() -> None:
    follower = FollowerProgress(0, is_in_sync=True)
    for step in range(1, 20):
        fetched(follower, step, step * 10, step * 10)
    assert follower.lags(200, LAG_MS, 190)


def test_the_first_fetch_of_a_term_proves_nothing_of_the_time_before() -> None:
    follower = fetched(FollowerProgress(0, is_in_sync=False), 5, 9, 500)
    assert follower.lags(9, LAG_MS, 501)


def test_it_may_go_back() -> None:
    follower = fetched(FollowerProgress(0, is_in_sync=True), 9, 9, 500)
    assert fetched(follower, 3, 9, 510).end_offset == 3
