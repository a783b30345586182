"""Metrics of the process and its event loop: version, resources, garbage collection pauses, and stalls of the loop."""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections.abc import Callable
from typing import Final

from moldau import __version__
from moldau.broker.metrics.exposition import Histogram, Page, Summary
from moldau.broker.release import KAFKA_VERSION
from moldau.broker.runtime.environment import GC_GENERATIONS, Process, ProcessFigures
from moldau.broker.runtime.loop_steps import LoopSteps

INTERVAL_S: Final = 0.1
"""The interval (seconds) of the timer that measures how long the event loop stalls."""
KEPT: Final = 6000
"""The number of measured stalls that are kept: those of the last ten minutes."""
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class ProcessMetrics:
    """The metrics of the process. Between `start` and `stop` it records the pauses of garbage collections."""

    def __init__(self, process: Process) -> None:
        self.pauses_s = [Summary() for _ in range(GC_GENERATIONS)]
        """The pauses (seconds) of garbage collections, by generation."""
        self._process = process

    def start(self) -> None:
        self._process.start(lambda generation, pause_s: self.pauses_s[generation].observe(pause_s))

    def stop(self) -> None:
        self._process.stop()

    def read(self) -> ProcessFigures | None:
        """Read the kernel's figures about the process, for `collect`. It blocks, so it is called in an executor
        thread.
        """
        return self._process.read()

    def collect(self, page: Page, facts: ProcessFigures | None) -> None:
        """Add the metrics of the process to a page. `facts` are the kernel's figures; None if the kernel provides
        none.
        """
        python = ".".join(str(part) for part in sys.version_info[:3])
        page.add("moldau_build_info", 1, (("version", __version__), ("kafka", KAFKA_VERSION), ("python", python)))
        for generation, summary in enumerate(self.pauses_s):
            page.add_summary("moldau_gc_pause_seconds", summary, (("generation", str(generation)),))
        if facts is not None:
            page.add("process_cpu_seconds_total", facts.cpu_s)
            page.add("process_resident_memory_bytes", facts.resident_bytes)
            page.add("process_open_fds", facts.open_fds)
            page.add("process_max_fds", facts.fds_max)


class StallWatch:
    """Measures how late (seconds) a periodic timer of the event loop fires. A request may be delayed for as long as the
    timer is late.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int]) -> None:
        self.stalls_s = Histogram(BOUNDS_S)
        self.longest_s = 0.0
        self._recent = array("d")
        self._next = 0
        self._loop = loop
        self._clock_ns = clock_ns
        self._armed_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._armed_ns = self._clock_ns()
        self._timer = self._loop.call_later(INTERVAL_S, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        late_s = (self._clock_ns() - self._armed_ns) / 1e9 - INTERVAL_S
        self.note(max(0.0, late_s))
        self.start()

    def note(self, stall_s: float) -> None:
        self.stalls_s.observe(stall_s)
        self.longest_s = max(self.longest_s, stall_s)
        if len(self._recent) < KEPT:
            self._recent.append(stall_s)
        else:
            self._recent[self._next] = stall_s
            self._next = (self._next + 1) % KEPT

    @property
    def p999_s(self) -> float:
        ordered = sorted(self._recent)
        return ordered[min(len(ordered) - 1, len(ordered) * 999 // 1000)] if ordered else 0.0

    def collect(self, page: Page) -> None:
        page.add_histogram("moldau_event_loop_stall_seconds", self.stalls_s)
        page.add("moldau_event_loop_stall_p999_seconds", self.p999_s)
        page.add("moldau_event_loop_stall_longest_seconds", self.longest_s)


def collect_longest_step(page: Page, steps: LoopSteps) -> None:
    """Add the longest step of the event loop to a page: that of the current period of a minute, or of the period before
    it.
    """
    held_ns, name = max(steps.last, steps.longest)
    page.add("moldau_event_loop_longest_step_seconds", held_ns / 1e9, (("step", name),))
