"""The quota on the replication traffic (bytes per second) of throttled replicas, for leaders or for followers (KIP-73).

    sample   sample   sample   now
    |--------|--------|--------|----          rate = all bytes of the samples kept ÷ time since the oldest began,
                                              one sample at the least

A response is never cut. While the rate is exceeded, the leader's plan, or the follower's next request, leaves throttled
replicas out. In-sync replicas are never left out, but their bytes count, as in Apache Kafka.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Final

UNLIMITED: Final = (1 << 63) - 1
ALL_PARTITIONS: Final = "*"
_THROTTLED_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


class RateWindow:
    """Measures a rate over a moving window: the last `count_max` samples of `sample_ms` each."""

    __slots__ = ("_count_max", "_sample_ms", "_samples", "_size")

    def __init__(self, count_max: int, sample_ms: int) -> None:
        self._count_max = count_max
        self._sample_ms = sample_ms
        self._samples: deque[tuple[int, int]] = deque()
        """The start time (ms) and the number of bytes of each sample."""
        self._size = 0

    def record_bytes(self, size: int, now_ms: int) -> None:
        self._forget_old(now_ms)
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._sample_ms:
            began_ms, before = samples.pop()
            samples.append((began_ms, before + size))
        else:
            samples.append((now_ms, size))
        self._size += size

    def rate(self, now_ms: int) -> float:
        """The rate over the window in bytes per second."""
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        return self._size * 1000 / self._span_ms(now_ms)

    def delay_ms(self, rate_max: float, now_ms: int) -> int:
        """The time (ms) without traffic until the rate falls to `rate_max` (bytes per second); 0 if it is not
        higher.
        """
        rate = self.rate(now_ms)
        return max(1, round((rate - rate_max) / rate_max * self._span_ms(now_ms))) if rate > rate_max else 0

    def _span_ms(self, now_ms: int) -> int:
        return max(now_ms - self._samples[0][0], self._sample_ms)

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._count_max * self._sample_ms:
            self._size -= samples.popleft()[1]


class ReplicationQuota:
    """The quota that all leaders, or all followers, of a broker share for throttled replication traffic (KIP-73)."""

    __slots__ = ("_throttled", "_window", "bytes_per_s_max")

    def __init__(self, count_max: int = 11, sample_ms: int = 1000) -> None:
        self.bytes_per_s_max = UNLIMITED
        """The limit in bytes per second."""
        self._throttled: dict[str, frozenset[int] | None] = {}
        """The throttled partition indexes of each topic; None for all partitions."""
        self._window = RateWindow(count_max, sample_ms)

    @property
    def is_idle(self) -> bool:
        """Whether no replica is throttled, so that the quota need not be checked."""
        return not self._throttled

    def set_throttled_partitions(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Set the throttled partitions of a topic: None throttles all of them, an empty set none."""
        if partitions is None or partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    def is_throttled(self, topic: str, partition: int) -> bool:
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def record_bytes(self, size: int, now_ms: int) -> None:
        """Count `size` bytes of throttled replicas that were sent or received."""
        self._window.record_bytes(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return (
            bool(self._throttled)
            and self.bytes_per_s_max < UNLIMITED
            and self._window.rate(now_ms) > self.bytes_per_s_max
        )

    def rate(self, now_ms: int) -> float:
        return self._window.rate(now_ms)


def parse_throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """Parse a list of partition:broker pairs, and return the partitions that are throttled on this broker. None for
    `*`, which throttles all partitions. Elements of another form, which Apache Kafka may have stored, are ignored.
    """
    pairs = [each.strip() for each in text.split(",") if each.strip()]
    if ALL_PARTITIONS in pairs:
        return None
    found = [match for pair in pairs if (match := _THROTTLED_REPLICA.fullmatch(pair))]
    return frozenset(int(match[1]) for match in found if int(match[2]) == broker_id)


def throttle_rate_setting(*layers: Mapping[str, str], name: str) -> int:
    """Read the rate `name` from the first of the mappings that has it; `UNLIMITED` if none has."""
    for layer in layers:
        if name in layer:
            return int(layer[name])
    return UNLIMITED
