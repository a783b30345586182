"""The progress of loading coordinators, over all partitions together."""

from __future__ import annotations

from collections.abc import Callable

from moldau.broker.runtime.progress import FIRST_MS, Progress, duration, log


class Loading:
    """Progress of loading the partitions of a coordinator. The counts include all partitions that are loading at the
    same time, and are reset to 0 when the last partition is loaded."""

    def __init__(self, topic: str, precise_ns: Callable[[], int]) -> None:
        self._topic = topic
        self._precise_ns = precise_ns
        self._progress = Progress(precise_ns)
        self._totals: dict[int, int] = {}
        """The number of records of each partition that is being loaded."""
        self._loaded: dict[int, int] = {}
        self._under_way: set[int] = set()

    def begins(self, index: int, records: int) -> None:
        """A partition with this many records is about to be loaded."""
        if not self._under_way:
            self._progress = Progress(self._precise_ns)
            self._totals.clear()
            self._loaded.clear()
        self._under_way.add(index)
        self._totals[index] = records
        self._loaded[index] = 0

    def reached(self, index: int, records: int) -> None:
        """This many records of the partition are loaded."""
        self._loaded[index] = records
        done, total = sum(self._loaded.values()), sum(self._totals.values())
        self._progress.reached(
            done / max(total, 1),
            lambda: f"loading {self._topic}: {done:,} of {total:,} records of {len(self._totals)} partitions",
        )

    def ends(self, index: int) -> None:
        """A partition is loaded, or its loading was given up. A second call has no effect."""
        if index not in self._under_way:
            return
        self._under_way.remove(index)
        if not self._under_way and self._progress.duration_ms >= FIRST_MS:
            took = duration(self._progress.duration_ms / 1000)
            log.info("loaded %s: %s records in %s", self._topic, f"{sum(self._loaded.values()):,}", took)
