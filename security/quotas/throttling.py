"""Throttles clients by their rates of bytes or of request handler time.

Request time is recorded in percent of one thread: 10 ms within a second are 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.protocol.late_dataclass import dataclass
from moldau.security.quotas.limits import ClientLimit, QuotaLimits, QuotaTags
from moldau.security.quotas.sampled_rate import THROTTLE_MS_MAX, QuotaWindows, SampledRate, throttle_ms

RATES_MAX: Final = 10_000
"""The maximum number of rates that are kept. Beyond it, the rate that was recorded least recently is dropped."""
IDLE_MS: Final = 3_600_000
"""The time (ms) without a record after which a rate is dropped."""
PERCENT_OF_NANOSECOND: Final = 100 / 1_000_000_000


@dataclass(slots=True)
class ClientRate:
    """The rate that clients with a common quota share, and their throttle times."""

    rate: SampledRate
    recorded_ms: int
    throttle_times: ThrottleTimes


class ClientThrottle:
    """The rates of all clients that have a quota with one key."""

    def __init__(self, key: str, limits: QuotaLimits, windows: QuotaWindows, most_ms: int = THROTTLE_MS_MAX) -> None:
        """`most_ms` is the maximum throttle time."""
        self._key = key
        self._limits = limits
        self._windows = windows
        self._most_ms = most_ms
        self._rates: dict[QuotaTags, ClientRate] = {}
        """The rates, by the tags of the clients that share them. The least recently recorded one is first."""

    @property
    def rates(self) -> Iterator[tuple[QuotaTags, ClientRate]]:
        """All rates that are kept, for metrics."""
        return iter(tuple(self._rates.items()))

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record a value of a client. Returns the time (ms) for which the client is to be throttled; 0 if it is within
        its quota.
        """
        limit = self._limit(user, client_id)
        if limit is None:
            return 0
        known = self._rates.pop(limit.tags, None)
        if known is None:
            self._drop(now_ms)
            known = ClientRate(SampledRate(self._windows), now_ms, ThrottleTimes())
        self._rates[limit.tags] = known
        known.recorded_ms = now_ms
        known.rate.record(value, now_ms)
        delay_ms = throttle_ms(known.rate, limit.value, now_ms, self._most_ms)
        if delay_ms > 0:
            known.throttle_times.record(delay_ms, now_ms)
        return delay_ms

    def refund(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Subtract a value that was just recorded for a client. The value is the size of a response that the client
        does not get, because it is throttled."""
        limit = self._limit(user, client_id)
        if limit is not None and limit.tags in self._rates:
            self._rates[limit.tags].rate.record(-value, now_ms)

    def value_max(self, user: str, client_id: str) -> float | None:
        """The largest value that a client may record at once within its quota, if it recorded nothing before: the quota
        times the duration of all windows except the current one. None if the client has no quota."""
        limit = self._limit(user, client_id)
        if limit is None:
            return None
        return limit.value * (self._windows.kept - 1) * self._windows.size_ms / 1000

    def _limit(self, user: str, client_id: str) -> ClientLimit | None:
        return self._limits.limit_of_client(self._key, user, client_id)

    def _drop(self, now_ms: int) -> None:
        """Drop idle rates, and if `RATES_MAX` are kept also the least recently recorded one, to make room for another
        rate.
        """
        while self._rates:
            tags, oldest = next(iter(self._rates.items()))
            if len(self._rates) < RATES_MAX and now_ms - oldest.recorded_ms < IDLE_MS:
                return
            del self._rates[tags]


TIMES_MS: Final = 30_000
"""The length (ms) of each of the two periods whose throttle times are kept."""


class ThrottleTimes:
    """Mean and maximum of the throttle times (ms) of the last 30 to 60 seconds."""

    def __init__(self) -> None:
        self._began_ms = 0
        self._now = self._before = (0, 0, 0)
        """The number, sum and maximum of the throttle times in the current period, and in the period before it."""

    def record(self, throttle_ms: int, now_ms: int) -> None:
        self._forget_old(now_ms)
        count, total, longest = self._now
        self._now = (count + 1, total + throttle_ms, max(longest, throttle_ms))

    def mean(self, now_ms: int) -> float:
        """The mean throttle time (ms); 0 if nothing was throttled."""
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
