"""Logs the progress of long work at a start: a line every few seconds, with counts and an estimate of the time that is
left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

PROGRESS_LOGGER: Final = "moldau.progress"
log = logging.getLogger(PROGRESS_LOGGER)

FIRST_LINE_MS: Final = 2_000
"""The time (ms) before the first line, so that shorter work logs nothing."""
LINE_INTERVAL_MS: Final = 5_000
ESTIMATE_FRACTION_MIN: Final = 0.01
"""The fraction of the work that must be done before the time that is left is estimated."""


class Progress:
    """The progress of one work, whose duration counts from the constructor on.

    `log_progress` may be called from any thread, as often as is convenient: it logs only when a line is due.
    """

    def __init__(self, precise_ns: Callable[[], int]) -> None:
        self._precise_ns = precise_ns
        self._began_ms = self._now_ms()
        self._next_ms = self._began_ms + FIRST_LINE_MS

    @property
    def duration_ms(self) -> int:
        """The time in ms since the work began."""
        return self._now_ms() - self._began_ms

    def log_progress(self, fraction: float, counts: Callable[[], str]) -> None:
        """Log a line if one is due. `fraction` is the part of the work that is done, 0 to 1. `counts` gives the text of
        the line; it is called only when a line is logged.
        """
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LINE_INTERVAL_MS
        log.info("%s%s", counts(), remaining_text(fraction, now_ms - self._began_ms))

    def _now_ms(self) -> int:
        # The loop's clock does not advance for other threads while the loop waits.
        return self._precise_ns() // 1_000_000


def remaining_text(fraction: float, elapsed_ms: int) -> str:
    """Estimate the time that is left, as text to append to a line; empty if it is too early for an estimate."""
    if fraction < ESTIMATE_FRACTION_MIN:
        return ""
    left_s = elapsed_ms / 1000 * (1 - min(fraction, 1.0)) / fraction
    return f", about {short_duration_text(left_s)} left"


def short_duration_text(seconds: float) -> str:
    """Format a duration with about two digits: `0.4 s`, `42 s`, `3 min`, `2 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.0f} h"


def byte_size_text(count: int) -> str:
    """Format a number of bytes in a unit that leaves few digits."""
    for unit, exponent in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << exponent:
            return f"{count / (1 << exponent):.1f} {unit}"
    return f"{count} bytes"
