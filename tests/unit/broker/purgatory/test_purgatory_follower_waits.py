"""Followers that wait for news are let go when leadership comes, and not kept long until they had time to turn."""

from __future__ import annotations

from moldau.broker.purgatory.purgatory import NEW_LEADER_PERIOD_MS, SHORT_WAIT_MS, FollowerWaits


class Fetch:
    def __init__(self, *, is_over: bool = False) -> None:
        self.is_over = is_over
        self.ends: list[int] = []

    def limit_wait(self, wait_ms: int) -> None:
        self.ends.append(wait_ms)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_what_is_parked_is_answered_when_leadership_comes_once() -> None:
    fetches = FollowerWaits(Clock())
    one, two, gone = Fetch(), Fetch(), Fetch()
    for each in (one, gone, two):
        fetches.add(each)
    gone.is_over = True
    fetches.on_leadership_gained()
    fetches.on_leadership_gained()
    assert (one.ends, two.ends, gone.ends) == ([SHORT_WAIT_MS], [SHORT_WAIT_MS], [])


def test_for_a_while_nothing_waits_long_and_then_as_long_as_it_likes() -> None:
    clock = Clock()
    fetches = FollowerWaits(clock)
    assert fetches.wait_ms(500) == 500
    fetches.on_leadership_gained()
    assert fetches.wait_ms(500) == SHORT_WAIT_MS and fetches.wait_ms(3) == 3
    clock.now_ms = NEW_LEADER_PERIOD_MS - 1
    assert fetches.wait_ms(500) == SHORT_WAIT_MS
    clock.now_ms = NEW_LEADER_PERIOD_MS
    assert fetches.wait_ms(500) == 500


def test_what_is_over_is_not_remembered() -> None:
    fetches = FollowerWaits(Clock())
    over, waiting = Fetch(is_over=True), Fetch()
    fetches.add(over)
    fetches.add(waiting)
    over.is_over = False
    fetches.on_leadership_gained()
    assert over.ends == [] and waiting.ends == [SHORT_WAIT_MS]
