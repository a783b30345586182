"""The quota of new connections per second from one address (KIP-612).

A connection above the limit is accepted, but its requests are not answered. It is closed when the rate of its address
has fallen to the limit, after one window at most. So a client that reconnects at once is slowed down, without delaying
other clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.security.quotas.limits import QuotaLimits
from moldau.security.quotas.sampled_rate import SampledRate, Windows, throttle_ms

ADDRESSES_MAX: Final = 10_000
"""Rates that are kept; at the limit the one is dropped that was recorded the longest ago."""


class AddressRates:
    """The rates of all addresses under quotas. An address without a quota has none."""

    def __init__(self, limits: QuotaLimits, windows: Windows) -> None:
        self._limits = limits
        self._windows = windows
        self._rates: dict[str, SampledRate] = {}
        """The rate that was recorded the longest ago is first."""

    @property
    def rates(self) -> Iterator[tuple[str, SampledRate]]:
        """The rates of all addresses under a quota, for metrics."""
        return iter(tuple(self._rates.items()))

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count an accepted connection. Returns the time (ms) after which it has to be closed; 0 where it may stay. A
        connection that may not stay is not counted.
        """
        limit = self._limits.of_address(address)
        if limit is None:
            return 0
        known = self._rates.pop(address, None)
        if known is None:
            if len(self._rates) >= ADDRESSES_MAX:
                del self._rates[next(iter(self._rates))]
            known = SampledRate(self._windows)
        self._rates[address] = known
        known.record(1, now_ms)
        delay_ms = throttle_ms(known, limit, now_ms, self._windows.size_ms)
        if delay_ms > 0:
            known.record(-1, now_ms)
        return delay_ms
