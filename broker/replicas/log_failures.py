"""The reports of logs about disk errors: a failed directory, a damaged log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.log import Log


class LogFailures:
    """Passes each report to its handler in the next event loop iteration: a log reports within an append or a read,
    during which it must not be changed. The handlers are attached before the loop runs again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._directory_failed: Callable[[LogDirectory], None]
        self._log_damaged: Callable[[Log, str], None]

    def attach(
        self, *, directory_failed: Callable[[LogDirectory], None], log_damaged: Callable[[Log, str], None]
    ) -> None:
        self._directory_failed = directory_failed
        self._log_damaged = log_damaged

    def directory_failed(self, directory: LogDirectory) -> None:
        """Report that an operation failed in a directory, which stays offline (`directory.failure`)."""
        self._loop.call_soon(lambda: self._directory_failed(directory))

    def log_damaged(self, damaged: Log, reason: str) -> None:
        """Report that a log's contents differ from what was written."""
        self._loop.call_soon(lambda: self._log_damaged(damaged, reason))
