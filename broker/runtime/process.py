"""The process as the kernel and the interpreter see it. It is part of the environment: a simulated node has none."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc/self")
GC_GENERATIONS: Final = 3


class ProcessFacts(NamedTuple):
    """The kernel's figures about the process at one time."""

    cpu_s: float
    """User and system time of all threads since the start."""
    resident_bytes: int
    open_fds: int
    fds_max: int


class Process:
    """The process as a source of metrics; only one node in a process can collect them. `clock_ns` is a monotonic clock
    (ns).
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._collected: Callable[[int, float], None] = lambda generation, pause_s: None

    def start(self, collected: Callable[[int, float], None]) -> None:
        """Call `collected` with the generation and the pause in seconds after each collection of cyclic garbage."""
        self._collected = collected
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Stop watching collections. A second call has no effect."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def read(self) -> ProcessFacts | None:
        """Read the process's metrics. Blocks while the kernel lists the descriptors; None where it has no such
        files.
        """
        try:
            resident_pages = int((PROC / "statm").read_text().split()[1])
            open_fds = sum(1 for _ in (PROC / "fd").iterdir())
        except OSError:
            return None
        usage = resource.getrusage(resource.RUSAGE_SELF)
        fds_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        resident_bytes = resident_pages * resource.getpagesize()
        return ProcessFacts(usage.ru_utime + usage.ru_stime, resident_bytes, open_fds, fds_max)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._clock_ns()
        else:
            self._collected(info["generation"], (self._clock_ns() - self._began_ns) / 1e9)
