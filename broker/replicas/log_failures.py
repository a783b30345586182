"""The reports of logs about disk errors: a failed directory, a damaged log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.log import Log

DirectoryListener = Callable[[LogDirectory], None]
DamageListener = Callable[[Log, str], None]


class LogFailures:
    """Passes each report to its listeners in the next event loop iteration: a log reports within an append or a read,
    during which it must not be changed. The listeners subscribe before the loop runs again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._directory_listeners: list[DirectoryListener] = []
        self._damage_listeners: list[DamageListener] = []

    def subscribe_to_directories(self, listener: DirectoryListener) -> None:
        """Call the listener with each directory that fails."""
        self._directory_listeners.append(listener)

    def subscribe_to_damage(self, listener: DamageListener) -> None:
        """Call the listener with each damaged log, and the reason."""
        self._damage_listeners.append(listener)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Report that an operation failed in a directory, which stays offline (`directory.failure`)."""
        self._loop.call_soon(lambda: [listener(directory) for listener in self._directory_listeners])

    def log_damaged(self, damaged: Log, reason: str) -> None:
        """Report that a log's contents differ from what was written."""
        self._loop.call_soon(lambda: [listener(damaged, reason) for listener in self._damage_listeners])
