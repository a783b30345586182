"""How long clients are throttled for the rates that they had: of bytes, or of the time of request handlers.

Request time is recorded in percent of one thread: 10 ms within a second are 1.
"""

from __future__ import annotations

from typing import Final

from security.quotas.limits import QuotaLimits, Sharers
from security.quotas.sampled_rate import SampledRate, Windows, throttle_ms

RATES_MAX: Final = 10_000
"""Rates that are kept; at the limit the one is dropped that was recorded the longest ago."""
IDLE_MS: Final = 3_600_000
"""A rate that was not recorded for so long is dropped."""
PERCENT_OF_NANOSECOND: Final = 100 / 1_000_000_000


class ClientThrottle:
    """The rates of all clients under quotas of one key."""

    def __init__(self, key: str, limits: QuotaLimits, windows: Windows, most_ms: int | None = None) -> None:
        """`most_ms`: how long a client is throttled at most; None where that is not bounded."""
        self._key = key
        self._limits = limits
        self._windows = windows
        self._most_ms = most_ms
        self._rates: dict[Sharers, tuple[SampledRate, int]] = {}
        """With the time of the last record; the rate that was recorded the longest ago is first."""

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count a value, and say for how many milliseconds the client is throttled: 0 for not at all."""
        limit = self._limits.of_client(self._key, user, client_id)
        if limit is None:
            return 0
        known = self._rates.pop(limit.sharers, None)
        rate = SampledRate(self._windows) if known is None else known[0]
        if known is None:
            self._drop(now_ms)
        self._rates[limit.sharers] = rate, now_ms
        rate.record(value, now_ms)
        return throttle_ms(rate, limit.value, now_ms, self._most_ms)

    def _drop(self, now_ms: int) -> None:
        """Make room for one rate more."""
        while self._rates:
            sharers, (_, recorded_ms) = next(iter(self._rates.items()))
            if len(self._rates) < RATES_MAX and now_ms - recorded_ms < IDLE_MS:
                return
            del self._rates[sharers]
