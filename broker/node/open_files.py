"""The limit on the segments that a node keeps open."""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.runtime.environment import Environment

OPEN_FILES_SHARE: Final = 2
"""The divisor of the share of file descriptors that segments may keep.

The others are for connections, and for files that are open for a short time.
"""


def bound_open_files(config: Config, environment: Environment, loop: asyncio.AbstractEventLoop) -> None:
    """Limit the open segments, once executor threads have loaded the logs: from then on only the event loop closes
    files.
    """
    count_max = config.integer("moldau.open.files.max")
    if count_max < 0:
        count_max = max(1, environment.descriptors_max() // OPEN_FILES_SHARE)
    environment.fs.open_files.bound(count_max, loop.call_soon_threadsafe)
