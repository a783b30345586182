"""Handshakes are bounded: in time, in number, and in the steps that run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from moldau.broker.network.tls import handshakes as limits
from moldau.broker.network.tls.handshakes import HANDSHAKE_S, STEPS_MAX, Handshakes


class Loop:
    """Keeps timers and work until they are called."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0
        self.works: list[tuple[Callable[[], object], asyncio.Future[object]]] = []

    def call_later(self, delay: float, call: Callable[..., None], *arguments: object) -> Loop:
        self.timers.append((delay, partial(call, *arguments)))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def run_in_executor(self, executor: None, work: Callable[[], object]) -> Future:
        future = Future()
        self.works.append((work, cast("asyncio.Future[object]", future)))
        return future


class Future:
    """A future whose callbacks are called at once."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Future], None]] = []
        self.value: object = None

    def add_done_callback(self, call: Callable[[Future], None]) -> None:
        self.callbacks.append(call)

    def cancelled(self) -> bool:
        return False

    def exception(self) -> None:
        return None

    def result(self) -> object:
        return self.value

    def finish(self, value: object) -> None:
        self.value = value
        for call in self.callbacks:
            call(self)


class Peer:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_handshake_has_ten_seconds() -> None:
    loop, peer, quick = Loop(), Peer(), Peer()
    handshakes = Handshakes(cast("asyncio.AbstractEventLoop", loop))
    handshakes.begin(peer)
    handshakes.begin(quick)
    handshakes.end(quick)
    assert (handshakes.count, loop.cancelled) == (1, 1)
    delay, call = loop.timers[0]
    assert delay == HANDSHAKE_S == 10
    call()
    assert peer.reasons == ["the TLS handshake took longer than 10 s"] and handshakes.count == 0


def test_beyond_the_limit_the_one_that_waits_longest_ends() -> None:
    loop, peers = Loop(), [Peer() for _ in range(limits.WAITING_MAX + 1)]
    handshakes = Handshakes(cast("asyncio.AbstractEventLoop", loop))
    for peer in peers:
        handshakes.begin(peer)
    assert handshakes.count == limits.WAITING_MAX
    assert [bool(peer.reasons) for peer in peers] == [True] + [False] * limits.WAITING_MAX


def test_a_few_steps_run_at_once_and_the_others_in_order() -> None:
    loop = Loop()
    handshakes = Handshakes(cast("asyncio.AbstractEventLoop", loop))
    done: list[tuple[int, object]] = []
    for number in range(STEPS_MAX + 2):
        handshakes.step(Peer(), lambda: None, lambda error, number=number: done.append((number, error)))  # type: ignore[misc]
    assert len(loop.works) == STEPS_MAX
    failure = OSError()
    cast("Future", loop.works[0][1]).finish(failure)
    assert len(loop.works) == STEPS_MAX + 1 and done == [(0, failure)]
    cast("Future", loop.works[STEPS_MAX][1]).finish(None)
    assert done == [(0, failure), (STEPS_MAX, None)] and len(loop.works) == STEPS_MAX + 2


def test_the_step_of_a_handshake_that_has_ended_does_not_run() -> None:
    loop, peers = Loop(), [Peer() for _ in range(STEPS_MAX + 3)]
    handshakes = Handshakes(cast("asyncio.AbstractEventLoop", loop))
    done: list[int] = []
    for number, peer in enumerate(peers):
        handshakes.begin(peer)
        handshakes.step(peer, lambda: None, lambda error, number=number: done.append(number))  # type: ignore[misc]
    handshakes.end(peers[STEPS_MAX])  # The client has left.
    loop.timers[STEPS_MAX + 1][1]()  # The time of the next one is over.
    for _, future in loop.works:  # The list grows while the steps finish.
        cast("Future", future).finish(None)
    assert done == [*range(STEPS_MAX), STEPS_MAX + 2]
