"""Deadlines by key. Moving a deadline is cheap, because most deadlines are moved by heartbeats and never fire."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """A heap of deadlines. Moving a deadline to a later time costs a dictionary write: the heap is corrected when the
    old time comes. Equal deadlines fire in the order in which they were queued.
    """

    __slots__ = ("_deadlines", "_heap", "_order", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, int] = {}
        self._queued: dict[KeyT, int] = {}
        """The earliest time at which the heap holds the key."""
        self._heap: list[tuple[int, int, KeyT]] = []
        self._order = 0

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        """Set the deadline of a key, in place of its earlier deadline."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: KeyT) -> None:
        self._deadlines.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """The time (ms) of the next deadline; None where no deadline is set."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> KeyT | None:
        """Remove and return the key with the earliest deadline; None where none is due."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._deadlines[key]
        self._queued.pop(key, None)
        return key

    def _settle(self) -> None:
        """Correct the head of the heap for deadlines that were cancelled or moved."""
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
