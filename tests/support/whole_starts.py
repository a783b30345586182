"""What a start makes of a log: nothing that was durable is cut away, and nothing that is sound is called damaged; what
is repaired is a replica that nobody counts on; and whoever was refused by a disk does not say that it lost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moldau.broker.config.config import Config
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.runtime.environment import Environment
from moldau.storage.directory.damaged_logs import DamagedLogs, RepairedLog
from moldau.storage.directory.directory_checkpoints import RECREATED_MARKER_FILE
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.directory.previous_run import SERVING_EPOCH_FILE
from moldau.storage.files.log_paths import LOG_SUFFIX, partition_directory_name
from moldau.storage.log.log import Log
from moldau.storage.log.recovery import CorruptLog
from moldau.testing.simulation.disk import SimulatedDisk

CountedOn = Callable[[SimulatedDisk, str, int], bool]
"""Whether the controller would elect the replica of a partition on this disk, or commit by it."""


@contextmanager
def whole_starts(complaints: list[str], is_counted_on: CountedOn) -> Iterator[None]:
    """What is wrong is a complaint."""
    opened, load, repair, fail = (
        LocalLogs.__init__,
        LogDirectory.load_log,
        DamagedLogs.repair_log,
        LogDirectory.take_offline,
    )
    halt = Quorum._halt
    refused: set[tuple[object, str]] = set()

    def watched_open(self: LocalLogs, config: Config, environment: Environment, *args: Any) -> None:
        opened(self, config, environment, *args)
        served = {(environment.fs, directory.path) for directory in self.directories}
        epoch = self.previous_broker_epoch
        may_forget = any(not disk_of(environment).has_refused(f"{path}/{SERVING_EPOCH_FILE}") for _, path in served)
        if refused & served and epoch >= 0 and may_forget:
            complaints.append(f"a disk refused something, and its broker says that it lost nothing in {epoch}")
        refused.difference_update(served)

    def watched_halt(self: Quorum, reason: str) -> None:
        refused.update((self._environment.fs, path) for path in self._config.log_dirs)
        halt(self, reason)

    def watched_fail(self: LogDirectory, error: OSError) -> None:
        refused.add((self.fs, self.path))
        fail(self, error)

    def watched_load(self: LogDirectory, topic: str, partition: int, *args: Any, **named: Any) -> Log:
        disk = self.fs
        assert isinstance(disk, SimulatedDisk)
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        names = disk.list_directory(path)
        is_new = RECREATED_MARKER_FILE in names or not any(name.endswith(LOG_SUFFIX) for name in names)
        point = 0 if is_new else self.checkpoints.recovery_points.get((topic, partition), 0)
        try:
            log = load(self, topic, partition, *args, **named)
        except CorruptLog as error:
            # A failed sync may leave a hole before batches that were written after it, and a later life finds it.
            if not disk.is_rotten(path) and not disk.has_hole(path):
                complaints.append(f"{path} is called damaged and is sound: {error}")
            raise
        if log.end_offset < point:
            complaints.append(f"{path} was durable up to {point}, and ends at {log.end_offset} after a start")
        return log

    def watched_repair(self: DamagedLogs, topic: str, partition: int, *args: Any) -> RepairedLog:
        assert isinstance(self.fs, SimulatedDisk)
        if is_counted_on(self.fs, topic, partition):
            complaints.append(f"{topic}-{partition} is repaired and counted on")
        return repair(self, topic, partition, *args)

    with (
        patch.multiple(LogDirectory, load_log=watched_load, take_offline=watched_fail),
        patch.object(DamagedLogs, "repair_log", watched_repair),
        patch.object(LocalLogs, "__init__", watched_open),
        patch.object(Quorum, "_halt", watched_halt),
    ):
        yield


def disk_of(environment: Environment) -> SimulatedDisk:
    assert isinstance(environment.fs, SimulatedDisk)
    return environment.fs
