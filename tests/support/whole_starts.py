"""What a start makes of a log: nothing that was durable is cut away, and nothing that is sound is called damaged; and
what is repaired is a replica that nobody counts on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from storage.log import Log
from storage.log_directory import LogDirectory, Repaired
from storage.log_paths import partition_directory_name
from storage.recovery import CorruptLog
from tests.support.simulation.disk import SimulatedDisk

CountedOn = Callable[[SimulatedDisk, str, int], bool]
"""Whether the controller would elect the replica of a partition on this disk, or commit by it."""


@contextmanager
def whole_starts(complaints: list[str], is_counted_on: CountedOn) -> Iterator[None]:
    """What is wrong is a complaint."""
    load, repair = LogDirectory.load, LogDirectory.repair

    def watched_load(self: LogDirectory, topic: str, partition: int, *args: Any) -> Log:
        disk, point = self.fs, self._recovery_points.get((topic, partition), 0)
        assert isinstance(disk, SimulatedDisk)
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        try:
            log = load(self, topic, partition, *args)
        except CorruptLog as error:
            if not disk.is_rotten(path):
                complaints.append(f"{path} is called damaged and is sound: {error}")
            raise
        if log.end_offset < point:
            complaints.append(f"{path} was durable up to {point}, and ends at {log.end_offset} after a start")
        return log

    def watched_repair(self: LogDirectory, topic: str, partition: int, *args: Any) -> Repaired:
        assert isinstance(self.fs, SimulatedDisk)
        if is_counted_on(self.fs, topic, partition):
            complaints.append(f"{topic}-{partition} is repaired and counted on")
        return repair(self, topic, partition, *args)

    LogDirectory.load, LogDirectory.repair = watched_load, watched_repair  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        LogDirectory.load, LogDirectory.repair = load, repair  # type: ignore[method-assign]
