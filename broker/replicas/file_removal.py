"""Removes files and directory trees that are no longer part of a log, after file.delete.delay.ms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn

log = logging.getLogger("moldau.logs")


class FileRemoval:
    """Removes files and directory trees some time after their logs have released them.

    A reader may hold a renamed file for a while, so each removal waits first. The next start does the removals that a
    stop interrupted.
    """

    def __init__(self, environment: Environment, spawn: Spawn) -> None:
        self._environment = environment
        self._spawn = spawn

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files and directory trees in an executor thread, `delay_ms` from now."""
        self._spawn(self._remove(paths, delay_ms))

    async def _remove(self, paths: Sequence[str], delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)
        fs = self._environment.fs
        for path in paths:
            remove = fs.remove_tree if fs.is_directory(path) else fs.unlink
            try:
                await self._environment.offload(partial(remove, path))
            except FileNotFoundError:
                continue  # Another file was renamed to the same name in the meantime, and is removed already.
            except OSError as error:
                log.warning("%s was not removed: %s", path, error)
