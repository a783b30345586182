"""A purgatory over a loop that runs what was scheduled when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from moldau.broker.purgatory.purgatory import CommitWait, Purgatory
from moldau.broker.purgatory.timer_wheel import Timeouts


class Timer:
    def __init__(self, when_s: float, call: Callable[[], None]) -> None:
        self.when_s = when_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """Runs what was scheduled when told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ready: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.ready.append(lambda: callback(*args))

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[..., None], *args: object) -> Timer:
        timer = Timer(when_s, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def iterate(self) -> None:
        """Run one iteration: the callbacks that were ready at its beginning."""
        due, self.ready = self.ready, []
        for call in due:
            call()

    def run(self) -> None:
        """Iterate until nothing is ready."""
        while self.ready:
            self.iterate()

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [each for each in self.timers if each.when_s <= self.now_s and not each.is_cancelled]
        self.timers = [each for each in self.timers if each not in due]
        for timer in due:
            timer.call()
        self.run()


def purgatory_of(loop: object) -> Purgatory:
    """A purgatory over any loop."""
    made = cast("Any", loop)
    return Purgatory(made, Timeouts(made), lambda: int(made.time() * 1000))


def waiting(commits: Iterable[CommitWait]) -> int:
    """The waits that were not cancelled; cancelled ones stay in the queue until their turn comes."""
    return sum(each._queue is not None for each in commits)


def watch_count(purgatory: Purgatory) -> int:
    """The number of watches; an operation counts once for each key."""
    return sum(
        len(each.log_end_offset)
        + len(each.high_watermark)
        + len(each.last_stable_offset)
        + len(each.low_watermark)
        + waiting(each.commits)
        for each in purgatory._watchers.values()
    )
