"""The log of closed connections and the reasons: a limited number of lines a second, and the count of the lines left
out.

A client can cause any number of closed connections. Each line takes as long as a small request, and an unlimited number
of lines would fill the disk of the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

log = logging.getLogger("moldau.connection")

LINES_MAX: Final = 20
"""The most lines of one listener in `PERIOD_S`."""
PERIOD_S: Final = 1.0


class ClosingLog:
    """Logs the closed connections of one listener. A line below the level in force costs nothing and is not counted; an
    ERROR is always logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._said_count = 0
        self._left_out_count = 0
        self._until_s = -PERIOD_S
        """The end (seconds, the loop's clock) of the period of the counts."""

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
