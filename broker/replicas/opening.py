"""The opening of a broker's logs at start: its progress, and its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.broker.runtime.progress import Progress, size


class Opened(NamedTuple):
    """The result of opening the log directories."""

    partitions: int
    was_clean: bool
    """Whether the process before this one closed all logs. After any other end they are recovered."""
    damaged: int
    """Partitions that are not served because their files are not what was written."""
    checked_size: int
    """Bytes of which recovery compared the checksums."""
    duration_ms: int


class Opening:
    """Counts for several threads, each of which opens one log at a time."""

    def __init__(self, precise_ns: Callable[[], int], partitions: int, threads: int, *, was_clean: bool) -> None:
        self._progress = Progress(precise_ns)
        self._partitions = partitions
        self._was_clean = was_clean
        self._done = [0] * threads
        self._checked = [0] * threads
        self._current = [(0, 0)] * threads

    def checked(self, thread: int, checked_size: int, of_size: int) -> None:
        """Recovery of the log that a thread is opening has checked this many bytes."""
        self._current[thread] = checked_size, of_size
        self._tell()

    def opened(self, thread: int) -> None:
        """A thread has opened a log, or has failed to."""
        self._checked[thread] += self._current[thread][0]
        self._current[thread] = 0, 0
        self._done[thread] += 1
        self._tell()

    def result(self, damaged: int) -> Opened:
        """The result, once all threads have ended."""
        return Opened(self._partitions, self._was_clean, damaged, sum(self._checked), self._progress.duration_ms)

    def _tell(self) -> None:
        parts = sum(checked / of for checked, of in self._current if of)
        self._progress.reached((sum(self._done) + parts) / self._partitions, self._counts)

    def _counts(self) -> str:
        done = f"{sum(self._done):,} of {self._partitions:,} partitions"
        if self._was_clean:
            return f"opening logs: {done}"
        checked = sum(self._checked) + sum(checked for checked, _ in self._current)
        return f"recovering logs after an unclean stop: {done}, {size(checked)} checked"
