"""How many connections an address may make in a second (KIP-612).

A connection above the rate is accepted and gets no answer; it is closed when its address is at the rate again, after
one window at the most. So a client that tries again at once is slowed down, and others are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from security.quotas.limits import QuotaLimits
from security.quotas.sampled_rate import SampledRate, Windows, throttle_ms

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
        """All rates that are kept, for metrics."""
        return iter(tuple(self._rates.items()))

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a connection that was accepted, and say after how many milliseconds it has to be closed: 0 where it
        may stay. One that may not stay counts no more."""
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
