"""The pending half of a pair: changes that are appended and not committed.

A machine whose readers may run ahead of the in-sync replicas keeps two states: the committed one, which readers see,
and the changes since, which its decisions take into account. A read then never waits, and nothing is rolled back.
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
        """A change was appended; its batch ends at `end_offset`."""
        self._changes.append((end_offset, change))

    def take_committed(self, committed_end_offset: int) -> Iterator[ChangeT]:
        """Take out the changes whose batches end at this offset or before it, in the order of the log."""
        changes = self._changes
        while changes and changes[0][0] <= committed_end_offset:
            yield changes.popleft()[1]
