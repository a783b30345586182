"""The reports of logs about disk errors: a failed directory, a damaged log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log


class LogFailures:
    """Passes each report on in the loop's next iteration: reports are made within an append or a read, where the log
    must not be changed. The handlers are attached before the loop runs again.
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
        """The directory's disk refused an operation, and the directory stays offline (`directory.failure`)."""
        self._loop.call_soon(lambda: self._directory_failed(directory))

    def log_damaged(self, damaged: Log, reason: str) -> None:
        """The log's contents are not what was written."""
        self._loop.call_soon(lambda: self._log_damaged(damaged, reason))
