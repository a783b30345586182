"""The pending half of a pair: changes that are appended and not committed.

Readers must not see a record before the in-sync replicas have it. So a machine keeps two states: the committed state,
which readers see, and the later changes, which its decisions take into account. A read then never waits, and nothing is
rolled back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

ChangeT = TypeVar("ChangeT")


class PendingChanges(Generic[ChangeT]):
    """Changes in the order of the log, each with the end offset of its batch."""

    def __init__(self) -> None:
        self._changes: deque[tuple[int, ChangeT]] = deque()

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[ChangeT]:
        return (change for _, change in self._changes)

    def add(self, change: ChangeT, end_offset: int) -> None:
        """Add an appended change; its batch ends at `end_offset`."""
        self._changes.append((end_offset, change))

    def take_committed(self, committed_end_offset: int) -> Iterator[ChangeT]:
        """Remove and return the changes whose batches end at or before this offset, in the order of the log."""
        changes = self._changes
        while changes and changes[0][0] <= committed_end_offset:
            yield changes.popleft()[1]
