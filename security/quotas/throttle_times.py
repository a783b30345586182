"""How long clients, or transfers, were throttled in the last minute."""

from __future__ import annotations

from typing import Final

TIMES_MS: Final = 30_000
"""Throttle times are told of this time and that before."""


class ThrottleTimes:
    """Mean and maximum of the throttle times (ms) of the last minute."""

    def __init__(self) -> None:
        self._began_ms = 0
        self._now = self._before = (0, 0, 0)
        """Count, sum and maximum, of the present half minute and of that before it."""

    def record(self, throttle_ms: int, now_ms: int) -> None:
        self._forget_old(now_ms)
        count, total, longest = self._now
        self._now = (count + 1, total + throttle_ms, max(longest, throttle_ms))

    def mean(self, now_ms: int) -> float:
        """The mean throttle time in ms; 0 where nothing was throttled."""
        self._forget_old(now_ms)
        return (self._now[1] + self._before[1]) / max(1, self._now[0] + self._before[0])

    def longest(self, now_ms: int) -> int:
        self._forget_old(now_ms)
        return max(self._now[2], self._before[2])

    def _forget_old(self, now_ms: int) -> None:
        if now_ms - self._began_ms >= 2 * TIMES_MS:
            self._now = (0, 0, 0)
        if now_ms - self._began_ms >= TIMES_MS:
            self._began_ms, self._before, self._now = now_ms, self._now, (0, 0, 0)
