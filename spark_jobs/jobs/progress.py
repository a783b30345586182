"""The progress of a Spark job: it prints a line every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The settings of the progress lines of a job. `say` prints a line; `size`: the number of bytes that
    the job reads."""

    say: Callable[[str], None]
    size: int
    tasks_count: int
    interval_seconds: float = INTERVAL_SECONDS

    def line(self, stages: list[tuple[int, int]], seconds: float) -> str:
        """The progress line for the active stages. Each stage is (tasks done, tasks); the first stage is the one that
        reads."""
        if not stages:
            return f"{seconds:.0f} s: no task is running"
        done, count = stages[0]
        if count == self.tasks_count and len(stages) == 1:
            read_size = self.size * done // max(count, 1)
            return f"{seconds:.0f} s: read {megabytes(read_size)} of {megabytes(self.size)}, {done} of {count} tasks"
        return f"{seconds:.0f} s: " + ", ".join(f"{done} of {count} tasks" for done, count in stages)


def megabytes(size: int) -> str:
    """A number of bytes as text, in MB. A small number has three decimals."""
    return f"{size / 1e6:,.1f} MB" if size >= 50_000 or not size else f"{size / 1e6:.3f} MB"


def with_noun(number: int, noun: str) -> str:
    """A number with its noun as text: `1 task`, `2,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@contextmanager
def progress_shown(session: SparkSession, progress: JobProgress) -> Iterator[None]:
    """Print a progress line every interval while the block of the `with` runs a job."""
    finished = threading.Event()
    tracker = session.sparkContext.statusTracker()
    started = time.monotonic()

    def watch() -> None:
        while not finished.wait(progress.interval_seconds):
            found = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
            stages = [(stage.numCompletedTasks, stage.numTasks) for stage in found if stage is not None]
            progress.say(progress.line(stages, time.monotonic() - started))

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
