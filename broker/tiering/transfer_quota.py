"""The quotas (bytes a second) of copies to remote storage, and of reads from it (KIP-956).

    remote.log.manager.<copy|fetch>.max.bytes.per.second   the limit, of the whole broker; may change at run time
    remote.log.manager.<copy|fetch>.quota.window.*         the samples over which the rate is measured

A transfer that has begun is not interrupted: a copy waits before it begins, a fetch is answered without records. So the
rate may exceed the limit for the duration of one segment or read, and the next transfer waits longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.metadata.dynamic_config import DynamicConfig
from replication.replication_quota import Window

LOOK_AGAIN_S: Final = 1.0
"""The interval (seconds) at which a waiting copy checks the rate again."""
TIMES_MS: Final = 30_000
"""The period (ms) of the throttle times: the current one and the one before it."""


class QuotaNames(NamedTuple):
    """The settings of one direction."""

    rate: str
    samples: str
    sample_seconds: str


COPY_QUOTA: Final = QuotaNames(
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.copy.quota.window.num",
    "remote.log.manager.copy.quota.window.size.seconds",
)
FETCH_QUOTA: Final = QuotaNames(
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.fetch.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds",
)


class ThrottleTimes:
    """Mean and maximum of the throttle times (ms) of the last minute."""

    def __init__(self) -> None:
        self._began_ms = 0
        self._now = self._before = (0, 0, 0)
        """Count, sum and maximum of the current half minute and of the one before it."""

    def record(self, throttle_ms: int, now_ms: int) -> None:
        self._forget_old(now_ms)
        count, total, longest = self._now
        self._now = (count + 1, total + throttle_ms, max(longest, throttle_ms))

    def mean(self, now_ms: int) -> float:
        """The mean throttle time (ms); 0 where nothing was throttled."""
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


class TransferQuota:
    """The quota of one direction. Belongs to the event loop."""

    def __init__(self, names: QuotaNames, settings: DynamicConfig, monotonic_ms: Callable[[], int]) -> None:
        self._names = names
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        config = settings.config
        self._window = Window(config.integer(names.samples), 1000 * config.integer(names.sample_seconds))
        self._turn = asyncio.Lock()
        self.throttle_times = ThrottleTimes()

    def record(self, size: int) -> None:
        """Count bytes that were transferred, or are about to be."""
        self._window.record(size, self._monotonic_ms())

    def throttle_ms(self) -> int:
        """The time (ms) for which nothing should be transferred; 0 where the rate is within the limit."""
        return self._window.delay_ms(self._settings.config.integer(self._names.rate), self._monotonic_ms())

    def is_exceeded(self) -> bool:
        """Whether a transfer has to wait. The time is recorded as a throttle time."""
        throttle_ms = self.throttle_ms()
        if throttle_ms:
            self.throttle_times.record(throttle_ms, self._monotonic_ms())
        return throttle_ms > 0

    def rate(self) -> float:
        """The rate in bytes a second."""
        return self._window.rate(self._monotonic_ms())

    async def admit(self, size: int) -> None:
        """Wait, in the order of the calls, until a transfer of `size` bytes may begin. The bytes count from then on."""
        async with self._turn:
            while self.is_exceeded():
                await asyncio.sleep(LOOK_AGAIN_S)
            self.record(size)
