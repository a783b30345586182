"""A parked fetch: woken by its partitions, ended by its timer, released with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.delayed_fetch import DelayedFetch
from broker.pending import Pending
from protocol.messages.fetch import FetchResponse
from tests.support.partitions import partition


class Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Runs what was scheduled when told."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Timer]] = []

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.ready.append(lambda: callback(*args))

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: object) -> Timer:
        timer = Timer(lambda: callback(*args))
        self.timers.append((delay_s, timer))
        return timer

    def run(self) -> None:
        while self.ready:
            self.ready.pop(0)()


class Parked:
    """A fetch over some partitions, and what it was asked."""

    def __init__(self, partitions: int = 2) -> None:
        self.loop = Loop()
        self.partitions = [partition(index=i) for i in range(partitions)]
        self.attempts: list[bool] = []
        self.answer: FetchResponse | Pending[FetchResponse] | None = None
        self.replies: list[FetchResponse] = []
        self.fetch = DelayedFetch(cast("asyncio.AbstractEventLoop", self.loop), 500, self.partitions, self.attempt)
        self.fetch.reply.listen(self.replies.append)

    def attempt(self, is_last: bool) -> FetchResponse | Pending[FetchResponse] | None:
        self.attempts.append(is_last)
        return FetchResponse() if is_last and self.answer is None else self.answer

    @property
    def waiters(self) -> int:
        return sum(len(each._waiters) for each in self.partitions)

    @property
    def timer(self) -> Timer:
        ((delay_s, timer),) = self.loop.timers
        assert delay_s == 0.5
        return timer


def test_many_wakes_in_one_callback_are_one_look() -> None:
    parked = Parked()
    for each in parked.partitions * 3:
        each.wake()
    parked.loop.run()
    assert parked.attempts == [False] and not parked.replies
    parked.partitions[0].wake()
    parked.loop.run()
    assert parked.attempts == [False, False]


def test_an_answer_ends_the_waiting_everywhere() -> None:
    parked = Parked()
    parked.answer = FetchResponse(session_id=7)
    parked.partitions[1].wake()
    parked.loop.run()
    assert [each.session_id for each in parked.replies] == [7]
    assert parked.waiters == 0 and parked.timer.is_cancelled


def test_the_last_look_is_when_the_time_is_up() -> None:
    parked = Parked()
    parked.partitions[0].wake()
    parked.timer.call()
    parked.loop.run()
    assert parked.attempts == [True] and len(parked.replies) == 1 and parked.waiters == 0


def test_an_answer_that_is_still_being_read_is_passed_on_when_it_is_there() -> None:
    parked = Parked()
    cold: Pending[FetchResponse] = Pending()
    parked.answer = cold
    parked.timer.call()
    assert not parked.replies and parked.waiters == 0
    cold.complete(FetchResponse(session_id=9))
    assert [each.session_id for each in parked.replies] == [9]


def test_a_fetch_that_nobody_waits_for_leaves_nothing_behind() -> None:
    parked = Parked()
    parked.partitions[0].wake()
    parked.fetch.reply.abandon()
    assert parked.waiters == 0 and parked.timer.is_cancelled
    parked.loop.run()
    parked.timer.call()
    assert parked.attempts == [] and not parked.replies


def test_it_can_be_told_to_wait_no_longer() -> None:
    parked = Parked()
    parked.fetch.end_in(10)
    (_, first), (delay_s, second) = parked.loop.timers
    assert first.is_cancelled and delay_s == 0.01
    second.call()
    assert parked.attempts == [True] and len(parked.replies) == 1 and parked.fetch.is_over
