"""A parked fetch: woken by its partitions, ended by its timer, released with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.purgatory.delayed_fetch import DelayedFetch
from broker.purgatory.timer_wheel import Timeouts
from broker.purgatory.wakes import Wakes
from broker.runtime.pending import Pending
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
        self.now_s = 0.0
        self.ready: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Timer]] = []

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.ready.append(lambda: callback(*args))

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[..., None], *args: object) -> Timer:
        timer = Timer(lambda: callback(*args))
        self.timers.append((when_s, timer))
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
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.timeouts = Timeouts(loop)
        self.fetch = DelayedFetch(Wakes(loop), self.timeouts, 500, self.partitions, self.attempt)
        self.fetch.reply.listen(self.replies.append)

    def attempt(self, is_last: bool) -> FetchResponse | Pending[FetchResponse] | None:
        self.attempts.append(is_last)
        return FetchResponse() if is_last and self.answer is None else self.answer

    @property
    def waiters(self) -> int:
        return sum(len(each._waiters) for each in self.partitions)

    @property
    def is_timed(self) -> bool:
        """Whether an end of the wait is still set."""
        return any(queue.waiting for queue in self.timeouts._queues.values())

    def end(self) -> None:
        """The time is up."""
        self.loop.now_s += 0.5
        for when_s, timer in self.loop.timers:
            if when_s <= self.loop.now_s and not timer.is_cancelled:
                timer.call()
        self.loop.run()


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
    assert parked.waiters == 0 and not parked.is_timed


def test_the_last_look_is_when_the_time_is_up() -> None:
    parked = Parked()
    parked.end()
    parked.partitions[0].wake()
    parked.loop.run()
    assert parked.attempts == [True] and len(parked.replies) == 1 and parked.waiters == 0


def test_an_answer_that_is_still_being_read_is_passed_on_when_it_is_there() -> None:
    parked = Parked()
    cold: Pending[FetchResponse] = Pending()
    parked.answer = cold
    parked.end()
    assert not parked.replies and parked.waiters == 0
    cold.complete(FetchResponse(session_id=9))
    assert [each.session_id for each in parked.replies] == [9]


def test_a_fetch_that_nobody_waits_for_leaves_nothing_behind() -> None:
    parked = Parked()
    parked.partitions[0].wake()
    parked.fetch.reply.abandon()
    assert parked.waiters == 0 and not parked.is_timed
    parked.loop.run()
    parked.end()
    assert parked.attempts == [] and not parked.replies


def test_it_can_be_told_to_wait_no_longer() -> None:
    parked = Parked()
    parked.fetch.end_in(10)
    parked.loop.now_s = 0.01
    (_, timer) = parked.loop.timers[-1]
    timer.call()
    parked.loop.run()
    assert parked.attempts == [True] and len(parked.replies) == 1 and parked.fetch.is_over and not parked.is_timed
