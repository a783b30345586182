"""The process as the kernel and the interpreter see it; part of the environment, for a simulated node has none."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from broker.cli.version import installed_version
from broker.metrics.exposition import Page, Summary
from broker.release import KAFKA_VERSION

PROC: Final = Path("/proc/self")


class ProcessFacts(NamedTuple):
    cpu_s: float
    resident_bytes: int
    open_fds: int
    fds_max: int


class Process:
    """What only one node of a process can watch."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.pauses_s = [Summary(), Summary(), Summary()]
        """For the collector of cyclic garbage, by generation."""
        self.version = ""
        """Read with the facts: it takes an import of 50 ms, which a start need not wait for."""
        self._clock_ns = clock_ns
        self._began_ns = 0

    def start(self) -> None:
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def read(self) -> ProcessFacts | None:
        """Blocks for as long as it takes to list the descriptors; None where the kernel has no such files."""
        self.version = self.version or installed_version()
        try:
            resident_pages = int((PROC / "statm").read_text().split()[1])
            open_fds = sum(1 for _ in (PROC / "fd").iterdir())
        except OSError:
            return None
        usage = resource.getrusage(resource.RUSAGE_SELF)
        fds_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        resident_bytes = resident_pages * resource.getpagesize()
        return ProcessFacts(usage.ru_utime + usage.ru_stime, resident_bytes, open_fds, fds_max)

    def collect(self, page: Page, facts: ProcessFacts | None) -> None:
        python = ".".join(str(part) for part in sys.version_info[:3])
        page.add("moldau_build_info", 1, (("version", self.version), ("kafka", KAFKA_VERSION), ("python", python)))
        for generation, summary in enumerate(self.pauses_s):
            page.add_summary("moldau_gc_pause_seconds", summary, (("generation", str(generation)),))
        if facts is not None:
            page.add("process_cpu_seconds_total", facts.cpu_s)
            page.add("process_resident_memory_bytes", facts.resident_bytes)
            page.add("process_open_fds", facts.open_fds)
            page.add("process_max_fds", facts.fds_max)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._clock_ns()
        else:
            self.pauses_s[info["generation"]].observe((self._clock_ns() - self._began_ns) / 1e9)
