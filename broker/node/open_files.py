"""How many segments a node keeps open at a time."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.config.config import Config
from broker.runtime.environment import Environment

OPEN_FILES_SHARE: Final = 2
"""Segments keep one in so many of the process's file descriptors at most. The rest is for connections, and for files
that are open for a moment."""


def bound_open_files(config: Config, environment: Environment, loop: asyncio.AbstractEventLoop) -> None:
    """Once the logs are loaded by executor threads: from here on only the event loop gives files back."""
    count_max = config.integer("moldau.open.files.max")
    if count_max < 0:
        count_max = max(1, environment.descriptors_max() // OPEN_FILES_SHARE)
    environment.fs.open_files.bound(count_max, loop.call_soon_threadsafe)
