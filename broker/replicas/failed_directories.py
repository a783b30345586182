"""Log directories that fail: their partitions go offline, and the controller moves leadership elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.replicas.roles import ReplicaRoles
from moldau.storage.directory.log_directory import LogDirectory


class FailedDirectories:
    """Handles failed directories, as `LogFailures` reports them: takes them out of service."""

    def __init__(
        self,
        logs: LocalLogs,
        metadata_log_dir: str,
        replicas: Replicas,
        roles: ReplicaRoles,
        halt: Callable[[str], None],
    ) -> None:
        """`halt`: stops the process at once."""
        self._logs = logs
        self._metadata_log_dir = metadata_log_dir
        self._replicas = replicas
        self._roles = roles
        self._halt = halt
        self._tell: Callable[[bytes], object] | None = None

    def begin(self, tell: Callable[[bytes], object]) -> None:
        """The node serves: report the id of each offline directory to the controller, now and later."""
        self._tell = tell
        for path in self._logs.offline:
            self._tell_of(path)

    def failed(self, directory: LogDirectory) -> None:
        """Take the directory offline. Without the metadata log, or without any log directory, the node halts."""
        if directory.path == self._metadata_log_dir:
            self._halt(f"the metadata log directory {directory.path} has failed: {directory.failure}")
        if not self._logs.directories:
            self._halt(f"the last log directory {directory.path} has failed: {directory.failure}")
        for partition in tuple(self._replicas):
            if self._logs.directory_of(partition.log) == directory.path:
                self._roles.take_offline(partition)
        directory.abandon()
        self._tell_of(directory.path)

    def _tell_of(self, path: str) -> None:
        properties = self._logs.properties.get(path)
        if self._tell is not None and properties is not None and properties.directory_id is not None:
            self._tell(properties.directory_id)
