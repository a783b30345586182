"""Fetches of followers that wait for updates: none waits long while leadership comes to this broker.

A follower has one fetch under way to each leader. Where that waits for replica.fetch.wait.max.ms, the follower can ask
for nothing else meanwhile: a partition whose leader this broker has just become would not be fetched, and its acks=all
requests not be answered, until half a second later. So a broker that begins to lead answers the fetches that wait, and
lets none wait for long until its followers had time to turn to it.

    begins to lead ──▶ what waits is answered in `SHORT_MS` ──▶ for `TURNING_MS`, each fetch waits `SHORT_MS` at most
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

TURNING_MS: Final = 1_000
"""Time for a follower to read in the metadata that it has a new leader, and to add the partition to its fetches."""
SHORT_MS: Final = 10


class FollowerFetch(Protocol):
    """A fetch that waits for updates."""

    @property
    def is_over(self) -> bool:
        """Complete, or given up."""

    def end_in(self, wait_ms: int) -> None:
        """Wait no longer than that from now on."""


class FollowerWaits:
    """Of the followers of one broker."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._waiting: list[FollowerFetch] = []
        self._turning_until_ms: int | None = None

    def wait_ms(self, wanted_ms: int) -> int:
        """How long a fetch may wait that begins to wait now."""
        if self._turning_until_ms is None:
            return wanted_ms
        if self._monotonic_ms() >= self._turning_until_ms:
            self._turning_until_ms = None
            return wanted_ms
        return min(wanted_ms, SHORT_MS)

    def add(self, fetch: FollowerFetch) -> None:
        """It waits from now on. There are as many as followers: looking at all of them costs little."""
        self._waiting = [each for each in self._waiting if not each.is_over]
        self._waiting.append(fetch)

    def leadership_gained(self) -> None:
        """This broker has become the leader of a partition that other brokers follow."""
        self._turning_until_ms = self._monotonic_ms() + TURNING_MS
        waiting, self._waiting = self._waiting, []
        for fetch in waiting:
            if not fetch.is_over:
                fetch.end_in(SHORT_MS)
