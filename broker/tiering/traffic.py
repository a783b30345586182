"""The traffic between the broker and remote storage: counts for the metrics, and quotas (KIP-956).

    remote.log.manager.<copy|fetch>.max.bytes.per.second   the limit, of the whole broker; may change at run time
    remote.log.manager.<copy|fetch>.quota.window.*         the samples over which the rate is measured

A transfer is never interrupted. While the rate is above the limit, a new copy waits, and a fetch is answered without
records. So one segment or read may exceed the limit; the next transfer then waits longer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.replication.replication_quota import RateWindow
from moldau.security.quotas.throttling import ThrottleTimes

LOOK_AGAIN_S: Final = 1.0
"""The interval (seconds) at which a copy that waits for its quota checks the rate again."""


class RemoteCount(Enum):
    """The counted events, with the names of Kafka's BrokerTopicMetrics without "PerSec"."""

    FETCH_BYTES = "RemoteFetchBytes"
    FETCH_REQUESTS = "RemoteFetchRequests"
    FETCH_ERRORS = "RemoteFetchErrors"
    COPY_BYTES = "RemoteCopyBytes"
    COPY_REQUESTS = "RemoteCopyRequests"
    COPY_ERRORS = "RemoteCopyErrors"
    DELETE_REQUESTS = "RemoteDeleteRequests"
    DELETE_ERRORS = "RemoteDeleteErrors"
    BUILD_REQUESTS = "BuildRemoteLogAuxStateRequests"
    BUILD_ERRORS = "BuildRemoteLogAuxStateErrors"


class RemoteTraffic:
    """Counts the traffic with remote storage. Its methods are called on the event loop."""

    def __init__(self) -> None:
        self.total: Counter[RemoteCount] = Counter()
        self.topics: dict[str, Counter[RemoteCount]] = {}

    def count(self, topic: str, what: RemoteCount, count: int = 1) -> None:
        self.total[what] += count
        self.topics.setdefault(topic, Counter())[what] += count

    def retain(self, is_here: Callable[[str], bool]) -> None:
        """Drop the counts of topics that this broker does not have any more. The totals are not changed."""
        self.topics = {topic: counts for topic, counts in self.topics.items() if is_here(topic)}


class QuotaNames(NamedTuple):
    """The names of the settings of one quota, for copies or for fetches."""

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
    """The quota on the bytes of copies or of fetches. Its methods are called on the event loop."""

    def __init__(self, names: QuotaNames, settings: DynamicConfig, monotonic_ms: Callable[[], int]) -> None:
        self._names = names
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        config = settings.config
        self._window = RateWindow(config.integer(names.samples), 1000 * config.integer(names.sample_seconds))
        self._turn = asyncio.Lock()
        self.throttle_times = ThrottleTimes()

    def record(self, size: int) -> None:
        """Count `size` bytes that were transferred, or are about to be."""
        self._window.record_bytes(size, self._monotonic_ms())

    def throttle_ms(self) -> int:
        """The time (ms) for which no transfer should begin; 0 if the rate is within the limit."""
        return self._window.delay_ms(self._settings.config.integer(self._names.rate), self._monotonic_ms())

    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit, so that a transfer has to wait. If so, the time until it may begin is
        recorded as a throttle time.
        """
        throttle_ms = self.throttle_ms()
        if throttle_ms:
            self.throttle_times.record(throttle_ms, self._monotonic_ms())
        return throttle_ms > 0

    def rate(self) -> float:
        """The measured rate (bytes a second)."""
        return self._window.rate(self._monotonic_ms())

    async def admit(self, size: int) -> None:
        """Wait until a transfer of `size` bytes may begin, in the order of the calls. The bytes count as transferred
        from then on.
        """
        async with self._turn:
            while self.is_exceeded():
                await asyncio.sleep(LOOK_AGAIN_S)
            self.record(size)
