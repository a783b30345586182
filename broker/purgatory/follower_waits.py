"""The waiting fetches of followers. Their waits are short while this broker becomes leader of partitions.

A follower has one fetch in progress to each leader. While that fetch waits for replica.fetch.wait.max.ms, the follower
sends no other. A partition that this broker has just begun to lead would therefore not be fetched, and its acks=all
requests not be answered, until half a second later. So a broker that begins to lead answers the waiting fetches, and
keeps waits short until its followers had time to add the partition.

    begins to lead ──▶ waiting fetches end in `SHORT_MS` ──▶ for `TURNING_MS`, each fetch waits `SHORT_MS` at most
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

TURNING_MS: Final = 1_000
"""The time (ms) that a follower needs to learn of its new leader from the metadata, and to add the partition to its
fetches.
"""
SHORT_MS: Final = 10


class FollowerFetch(Protocol):
    """A fetch that waits for updates."""

    @property
    def is_over(self) -> bool:
        """Whether the fetch is complete or abandoned."""

    def end_in(self, wait_ms: int) -> None:
        """Shorten the wait: it ends at most that many milliseconds from now."""


class FollowerWaits:
    """The waiting fetches of one broker's followers."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._waiting: list[FollowerFetch] = []
        self._turning_until_ms: int | None = None

    def wait_ms(self, wanted_ms: int) -> int:
        """The time (ms) for which a fetch may wait that begins to wait now."""
        if self._turning_until_ms is None:
            return wanted_ms
        if self._monotonic_ms() >= self._turning_until_ms:
            self._turning_until_ms = None
            return wanted_ms
        return min(wanted_ms, SHORT_MS)

    def add(self, fetch: FollowerFetch) -> None:
        """Add a fetch that waits from now on. There is one for each follower, so examining all of them is cheap."""
        self._waiting = [each for each in self._waiting if not each.is_over]
        self._waiting.append(fetch)

    def leadership_gained(self) -> None:
        """This broker has become the leader of a partition that other brokers follow."""
        self._turning_until_ms = self._monotonic_ms() + TURNING_MS
        waiting, self._waiting = self._waiting, []
        for fetch in waiting:
            if not fetch.is_over:
                fetch.end_in(SHORT_MS)
