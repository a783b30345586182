"""The in-sync set of a partition: what the controller has confirmed, and the change that it was asked for.

    confirmed ──propose──▶ proposed ──confirmed by the controller (a newer partition epoch)──▶ confirmed
                              └────refused, or superseded by newer metadata──▶ confirmed, as it was or is now

While a change is under way nobody knows which of the two sets holds at the controller. So the high watermark waits for
every member of either (`maximal`), and acks=all counts the confirmed one alone.
"""

from __future__ import annotations

from typing import NamedTuple


class InSyncSet(NamedTuple):
    """A value; partitions replace theirs."""

    confirmed: tuple[int, ...]
    partition_epoch: int
    proposed: tuple[int, ...] | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """Whoever may be in the set."""
        if self.proposed is None:
            return self.confirmed
        return (*self.confirmed, *(each for each in self.proposed if each not in self.confirmed))

    @property
    def is_settled(self) -> bool:
        """No change is under way: the next may be proposed."""
        return self.proposed is None

    def propose(self, replicas: tuple[int, ...]) -> InSyncSet:
        assert self.proposed is None, "one change at a time"
        return self._replace(proposed=replicas)

    def refused(self) -> InSyncSet:
        """The controller did not take it."""
        return self._replace(proposed=None)
