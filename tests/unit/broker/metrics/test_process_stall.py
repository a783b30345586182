"""How late a timer fires is how long others waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from moldau.broker.metrics.exposition import Page
from moldau.broker.metrics.process import KEPT, StallWatch


class Clock:
    """A loop whose timers fire when told, as late as told."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.due: list[Callable[[], None]] = []
        self.cancelled = 0
        self.watch = StallWatch(cast("asyncio.AbstractEventLoop", self), lambda: self.now_ns)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> SimpleNamespace:
        self.due.append(callback)
        return SimpleNamespace(cancel=self.cancel)

    def cancel(self) -> None:
        self.cancelled += 1

    def fire_after(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        self.due.pop()()


def test_a_timer_that_fires_late_was_a_stall() -> None:
    clock = Clock()
    clock.watch.start()
    for seconds in (0.1, 0.35, 0.1):
        clock.fire_after(seconds)
    assert clock.watch.longest_s == pytest.approx(0.25)
    assert clock.watch.stalls_s.count == 3
    assert clock.watch.stalls_s.sum == pytest.approx(0.25)
    clock.watch.stop()
    assert clock.cancelled == 1


def test_the_quantile_forgets_what_is_ten_minutes_old_and_the_longest_does_not() -> None:
    watch = Clock().watch
    for _ in range(20):
        watch.note(5)
    assert watch.p999_s == 5
    for _ in range(KEPT):
        watch.note(0.001)
    assert (watch.p999_s, watch.longest_s) == (0.001, 5)
    for _ in range(KEPT // 500):
        watch.note(0.4)
    assert watch.p999_s == 0.4


def test_nothing_was_measured_yet() -> None:
    page = Page()
    Clock().watch.collect(page)
    assert "moldau_event_loop_stall_p999_seconds 0\n" in page.text()
