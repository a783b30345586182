"""The in-sync set of a partition: the set that the controller has confirmed, and the proposed change.

    confirmed ──propose──▶ proposed ──confirmed by the controller (a newer partition epoch)──▶ confirmed
                              └────refused, or superseded by newer metadata──▶ confirmed, as it was or is now

While a change is under way the leader cannot know which of the two sets holds at the controller. So the high watermark
waits for every member of either (`maximal`, as in KIP-497), and acks=all counts the confirmed one alone.
"""

from __future__ import annotations

from typing import NamedTuple


class InSyncSet(NamedTuple):
    """An in-sync set as a value; the leader replaces it at each change."""

    confirmed: tuple[int, ...]
    partition_epoch: int
    proposed: tuple[int, ...] | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """Every replica that may be in the set at the controller."""
        if self.proposed is None:
            return self.confirmed
        return (*self.confirmed, *(each for each in self.proposed if each not in self.confirmed))

    @property
    def is_settled(self) -> bool:
        """Whether no change is in progress, so that the next one may be proposed."""
        return self.proposed is None

    def propose(self, replicas: tuple[int, ...]) -> InSyncSet:
        assert self.proposed is None, "one change at a time"
        return self._replace(proposed=replicas)

    def refused(self) -> InSyncSet:
        """The set after the controller refused the change."""
        return self._replace(proposed=None)
