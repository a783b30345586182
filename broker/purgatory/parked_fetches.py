"""Fetches of followers that wait here for news: none waits long while leadership comes to this broker.

A follower has one fetch under way to each leader. Where that is parked for replica.fetch.wait.max.ms, the follower can
ask for nothing else meanwhile; so a partition whose leader this broker has just become would not be fetched, and its
acks=all not be answered, until half a second later. Whoever leads something new therefore answers what is parked, and
lets nothing wait for long until the followers have had time to turn to it.

    leads something new ──▶ what is parked is answered ──▶ for `TURNING_MS`, each fetch waits `SHORT_MS` at most
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

TURNING_MS: Final = 1_000
"""Time for a follower to read of its new leader, and to find it."""
SHORT_MS: Final = 10


class ParkedFetch(Protocol):
    """A fetch that waits for news."""

    @property
    def is_over(self) -> bool:
        """Answered, or given up."""

    def end_in(self, wait_ms: int) -> None:
        """Wait no longer than that from now on."""


class ParkedFetches:
    """Those of this broker's followers."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: a clock that never goes back."""
        self._now_ms = now_ms
        self._parked: list[ParkedFetch] = []
        self._turning_until_ms: int | None = None

    def wait_ms(self, wanted_ms: int) -> int:
        """How long a fetch may wait that begins to wait now."""
        if self._turning_until_ms is None:
            return wanted_ms
        if self._now_ms() >= self._turning_until_ms:
            self._turning_until_ms = None
            return wanted_ms
        return min(wanted_ms, SHORT_MS)

    def park(self, fetch: ParkedFetch) -> None:
        """It waits from now on; there are as many as followers, so that looking at all of them is nothing."""
        self._parked = [each for each in self._parked if not each.is_over]
        self._parked.append(fetch)

    def leads_anew(self) -> None:
        """This broker has become the leader of a partition that others follow."""
        self._turning_until_ms = self._now_ms() + TURNING_MS
        parked, self._parked = self._parked, []
        for fetch in parked:
            if not fetch.is_over:
                fetch.end_in(SHORT_MS)
