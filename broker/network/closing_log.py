"""Why connections are closed, in the node's own log: a bounded number of lines a second, then how many were left out.

Any client that may connect can have one connection after the other closed. Each line costs the loop as much as a small
request does, and lines without end fill the disk that the log is on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

log = logging.getLogger("moldau.connection")

LINES_MAX: Final = 20
"""Most lines of one listener in `PERIOD_S`."""
PERIOD_S: Final = 1.0


class ClosingLog:
    """Logs the closed connections of one listener. A line below the level in force costs nothing and is not counted; an
    ERROR is always logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._said_count = 0
        self._left_out_count = 0
        self._until_s = -PERIOD_S
        """The end of the period that the counts are of."""

    def say(self, level: int, client_host: str, reason: str) -> None:
        if not log.isEnabledFor(level):
            return
        now_s = self._loop.time()
        if now_s >= self._until_s:
            self._until_s = now_s + PERIOD_S
            self._said_count = 0
        if self._said_count < LINES_MAX or level >= logging.ERROR:
            self._said_count += 1
            log.log(level, "closing connection from %s: %s", client_host, reason)
            return
        if not self._left_out_count:
            self._loop.call_at(self._until_s, self._sum_up)
        self._left_out_count += 1

    def _sum_up(self) -> None:
        log.warning("%d more connections were closed in the last second, not named one by one", self._left_out_count)
        self._left_out_count = 0
