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

from moldau.broker.metadata.dynamic_config import DynamicConfig
from moldau.replication.replication_quota import Window
from moldau.security.quotas.throttle_times import ThrottleTimes

LOOK_AGAIN_S: Final = 1.0
"""How often a copy that waits looks at the rate again."""


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
