"""Passes on the reports of disk errors, and takes failed log directories out of service.

The partitions of a failed directory go offline, and the controller moves leadership elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.replicas.roles import ReplicaRoles
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.log import Log

DirectoryListener = Callable[[LogDirectory], None]
DamageListener = Callable[[Log, str], None]


class FailedDirectories:
    """Takes failed log directories, as `LogFailures` reports them, out of service."""

    def __init__(
        self,
        logs: LocalLogs,
        metadata_log_dir: str,
        replicas: Replicas,
        roles: ReplicaRoles,
        failures: LogFailures,
        halt: Callable[[str], None],
        report: Callable[[bytes], object],
    ) -> None:
        """`halt`: stops the process at once. `report`: reports the id of an offline directory to the controller."""
        self._logs = logs
        self._metadata_log_dir = metadata_log_dir
        self._replicas = replicas
        self._roles = roles
        self._halt = halt
        self._report = report
        self._reports = False
        failures.subscribe_to_directories(self.take_offline)

    def begin(self) -> None:
        """Report each offline directory to the controller from now on, because the node is registered and serves.
        Directories that are offline already are reported at once.
        """
        self._reports = True
        for path in self._logs.offline:
            self._report_offline(path)

    def take_offline(self, directory: LogDirectory) -> None:
        """Take the directory offline. The node halts if the directory holds the metadata log, or if no log directory is
        left.
        """
        if directory.path == self._metadata_log_dir:
            self._halt(f"the metadata log directory {directory.path} has failed: {directory.failure}")
        if not self._logs.directories:
            self._halt(f"the last log directory {directory.path} has failed: {directory.failure}")
        for partition in tuple(self._replicas):
            if self._logs.directory_of(partition.log) == directory.path:
                self._roles.take_offline(partition)
        directory.close_after_failure()
        self._report_offline(directory.path)

    def _report_offline(self, path: str) -> None:
        properties = self._logs.properties.get(path)
        if self._reports and properties is not None and properties.directory_id is not None:
            self._report(properties.directory_id)


class LogFailures:
    """Passes reports of failed directories and damaged logs to listeners, in the next event loop iteration. A log
    reports during an append or a read, and must not be changed until that operation has ended. The listeners subscribe
    before the first report is passed on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._directory_listeners: list[DirectoryListener] = []
        self._damage_listeners: list[DamageListener] = []

    def subscribe_to_directories(self, listener: DirectoryListener) -> None:
        """Call the listener with each directory that fails."""
        self._directory_listeners.append(listener)

    def subscribe_to_damage(self, listener: DamageListener) -> None:
        """Call the listener with each damaged log, and with the reason why it counts as damaged."""
        self._damage_listeners.append(listener)

    def report_failed_directory(self, directory: LogDirectory) -> None:
        """Report that an operation in a log directory failed, and that the directory stays offline. The error is in
        `directory.failure`.
        """
        self._loop.call_soon(lambda: [listener(directory) for listener in self._directory_listeners])

    def report_damaged_log(self, damaged: Log, reason: str) -> None:
        """Report that batches of a log differ from what was written. `reason` says what a read found."""
        self._loop.call_soon(lambda: [listener(damaged, reason) for listener in self._damage_listeners])
