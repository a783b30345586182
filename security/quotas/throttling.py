"""The throttle times of clients, by their rates of bytes or of request handler time.

Request time is recorded in percent of one thread: 10 ms within a second are 1.
"""

from __future__ import annotations

from typing import Final

from security.quotas.limits import QuotaLimits, Sharers
from security.quotas.sampled_rate import SampledRate, Windows, throttle_ms

RATES_MAX: Final = 10_000
"""The most rates that are kept. At the limit the rate that was recorded least recently is dropped."""
IDLE_MS: Final = 3_600_000
"""The time (ms) without a record after which a rate is dropped."""
PERCENT_OF_NANOSECOND: Final = 100 / 1_000_000_000


class ClientThrottle:
    """The rates of all clients under quotas of one key."""

    def __init__(self, key: str, limits: QuotaLimits, windows: Windows, most_ms: int | None = None) -> None:
        """`most_ms`: the longest throttle time; None where there is no limit."""
        self._key = key
        self._limits = limits
        self._windows = windows
        self._most_ms = most_ms
        self._rates: dict[Sharers, tuple[SampledRate, int]] = {}
        """The rates with the time (ms) of their last record; the least recently recorded one is first."""

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count a value. Returns the throttle time of the client in ms; 0 for none."""
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
        """Drop a rate to make room for another one."""
        while self._rates:
            sharers, (_, recorded_ms) = next(iter(self._rates.items()))
            if len(self._rates) < RATES_MAX and now_ms - recorded_ms < IDLE_MS:
                return
            del self._rates[sharers]
