"""Ends of waits: in time, in order, one timer for each length, and nothing left of those that were cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from moldau.broker.purgatory.timer_wheel import QUEUES_MAX, Timeouts
from moldau.testing.simulation.world import World


def run(story: Callable[[Timeouts, list[str]], None], seconds: float) -> list[str]:
    """What had ended after so long, with the virtual time of each."""
    ended: list[str] = []

    async def main() -> None:
        story(Timeouts(asyncio.get_running_loop()), ended)
        await asyncio.sleep(seconds)

    World(1).run(main(), limit_s=seconds + 1)
    return ended


def test_each_ends_after_its_own_time_whatever_the_order_in_which_they_were_set() -> None:
    def story(timeouts: Timeouts, ended: list[str]) -> None:
        for delay_ms in (300, 100, 200, 100):
            timeouts.call_after(delay_ms, partial(ended.append, str(delay_ms)))

    assert run(story, 0.25) == ["100", "100", "200"]


def test_what_was_cancelled_never_ends_and_the_next_one_ends_in_its_own_time() -> None:
    times: list[float] = []

    def story(timeouts: Timeouts, ended: list[str]) -> None:
        loop = asyncio.get_running_loop()
        first = timeouts.call_after(100, lambda: ended.append("first"))
        began_s = loop.time()
        loop.call_later(0.06, lambda: timeouts.call_after(100, lambda: times.append(loop.time() - began_s)))
        loop.call_later(0.07, first.cancel)

    assert run(story, 0.5) == []
    assert times == [pytest.approx(0.16, abs=0.001)]


def test_one_that_ends_may_cancel_another_of_the_same_moment() -> None:
    def story(timeouts: Timeouts, ended: list[str]) -> None:
        def end_first() -> None:
            ended.append("first")
            second.cancel()

        timeouts.call_after(100, end_first)
        second = timeouts.call_after(100, lambda: ended.append("second"))

    assert run(story, 0.5) == ["first"]


def test_no_length_stays_known_once_its_waits_are_over() -> None:
    known: list[int] = []

    def story(timeouts: Timeouts, ended: list[str]) -> None:
        for delay_ms in range(1, 2 * QUEUES_MAX):
            timeouts.call_after(delay_ms, lambda: ended.append("x"))
        known.append(len(timeouts._queues))
        asyncio.get_running_loop().call_later(0.5, lambda: known.append(len(timeouts._queues)))

    assert len(run(story, 1)) == 2 * QUEUES_MAX - 1
    assert known == [QUEUES_MAX, 0]
