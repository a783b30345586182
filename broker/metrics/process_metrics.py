"""Metrics of the process: its version, its resources, and the pauses of its garbage collector."""

from __future__ import annotations

import sys

from moldau import __version__
from moldau.broker.metrics.exposition import Page, Summary
from moldau.broker.release import KAFKA_VERSION
from moldau.broker.runtime.process import GC_GENERATIONS, Process, ProcessFacts


class ProcessMetrics:
    """Watches garbage collection between `start` and `stop`."""

    def __init__(self, process: Process) -> None:
        self.pauses_s = [Summary() for _ in range(GC_GENERATIONS)]
        """Pauses of the collector of cyclic garbage (seconds), by generation."""
        self._process = process

    def start(self) -> None:
        self._process.start(lambda generation, pause_s: self.pauses_s[generation].observe(pause_s))

    def stop(self) -> None:
        self._process.stop()

    def read(self) -> ProcessFacts | None:
        """Read the values for `collect`. It blocks, so an executor thread calls it."""
        return self._process.read()

    def collect(self, page: Page, facts: ProcessFacts | None) -> None:
        """Add the values that were read. `facts` is None where the kernel provides none."""
        python = ".".join(str(part) for part in sys.version_info[:3])
        page.add("moldau_build_info", 1, (("version", __version__), ("kafka", KAFKA_VERSION), ("python", python)))
        for generation, summary in enumerate(self.pauses_s):
            page.add_summary("moldau_gc_pause_seconds", summary, (("generation", str(generation)),))
        if facts is not None:
            page.add("process_cpu_seconds_total", facts.cpu_s)
            page.add("process_resident_memory_bytes", facts.resident_bytes)
            page.add("process_open_fds", facts.open_fds)
            page.add("process_max_fds", facts.fds_max)
