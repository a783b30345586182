"""Deadlines by key, cheap to push back: most of them are moved by heartbeats and never fire."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """A heap of deadlines. Moving one back costs a dictionary write: the heap is corrected when the old time comes.

    Of equal deadlines the one that was queued first fires first.
    """

    __slots__ = ("_deadlines", "_heap", "_order", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, int] = {}
        self._queued: dict[KeyT, int] = {}
        """The earliest time at which the heap holds the key."""
        self._heap: list[tuple[int, int, KeyT]] = []
        self._order = 0

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        """Fire at this time, in place of the time that was set before."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: KeyT) -> None:
        self._deadlines.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """When the next key is due, None where nothing is scheduled."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> KeyT | None:
        """Take out the key that is due first, None where none is due."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._deadlines[key]
        self._queued.pop(key, None)
        return key

    def _settle(self) -> None:
        """Bring the heap's head in line with the deadlines that were cancelled and moved."""
        heap = self._heap
        while heap:
            queued, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if deadline == queued:
                return
            heappop(heap)
            if self._queued.get(key) == queued:
                del self._queued[key]
                if deadline is not None:
                    self._push(key, deadline)

    def _push(self, key: KeyT, deadline_ms: int) -> None:
        self._order += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._order, key))
