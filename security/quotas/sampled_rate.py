"""Measures a rate over the last windows, as Kafka's brokers do for quotas.

The period has `quota.window.num` windows of `quota.window.size.seconds` each. One more window is kept, which the
beginning of the period may divide.

The rate is the sum of the values divided by the time since the oldest window began. Windows that have not begun yet
count with their full length, so that the first values do not give a high rate.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple

THROTTLE_MS_MAX: Final = (1 << 31) - 1
"""The longest throttle time (ms): a response has 32 bits for it.

DIVERGES: Apache Kafka cuts the upper bits of a longer time off, so that the time may be short, or negative: then the
client is not throttled.
"""


class QuotaWindows(NamedTuple):
    """The number and the length of the windows over which a rate is measured."""

    kept: int = 11
    """The setting `quota.window.num`."""
    size_ms: int = 1000
    """The setting `quota.window.size.seconds`, in milliseconds."""


@dataclass(slots=True)
class _Window:
    began_ms: int
    last_ms: int
    """The time (ms) of the last value in the window."""
    total: float = 0.0


class SampledRate:
    """A rate in units per second, measured over the last windows. Each call must have a time (ms) that is not before
    that of the previous call."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: list[_Window] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples:
            self._samples.append(_Window(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.began_ms >= self._windows.size_ms:
            sample = self._next(now_ms)
        sample.total += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The current rate, in units per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(sample.total for sample in self._samples) / (elapsed_ms / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """The length (ms) of the period over which the rate is measured."""
        self._forget(now_ms)
        kept, size_ms = self._windows
        oldest_ms = min((sample.began_ms for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = kept - 1 - elapsed_ms // size_ms
        return max(elapsed_ms + max(missing, 0) * size_ms, 1)

    def _next(self, now_ms: int) -> _Window:
        self._current = (self._current + 1) % (self._windows.kept + 1)  # The oldest window overlaps the period.
        if self._current == len(self._samples):
            self._samples.append(_Window(now_ms, now_ms))
        else:
            self._samples[self._current] = _Window(now_ms, now_ms)
        return self._samples[self._current]

    def _forget(self, now_ms: int) -> None:
        """Reset the windows that ended before the measured period began, so that their values do not count."""
        age_ms = self._windows.kept * self._windows.size_ms
        for index, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= age_ms:
                self._samples[index] = _Window(now_ms, now_ms)


def throttle_ms(rate: SampledRate, limit: float, now_ms: int, most_ms: int = THROTTLE_MS_MAX) -> int:
    """Compute the time (ms) after which the rate of a client falls to the limit if the client sends nothing, at most
    `most_ms`. It is 0 if the rate is not above the limit."""
    value = rate.measure(now_ms)
    if value <= limit:
        return 0
    return min(rounded_throttle_ms((value - limit) / limit * rate.elapsed_ms(now_ms)), most_ms)


def rounded_throttle_ms(time_ms: float) -> int:
    """Round a throttle time to the nearest whole number, and halves up, as Java does. It is at most
    `THROTTLE_MS_MAX`."""
    return int(min(time_ms, THROTTLE_MS_MAX) + 0.5)
