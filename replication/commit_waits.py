"""Who waits for an offset to be committed: acks=all, in the order of the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from protocol.errors import ErrorCode

Committed = Callable[[ErrorCode], None]
"""Called once: NONE, or why the records are not known to be committed."""


class CommitWaits:
    """Offsets are added in ascending order, as they are appended."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: deque[tuple[int, Committed]] = deque()

    def add(self, end_offset: int, committed: Committed) -> None:
        assert not self._waits or self._waits[-1][0] <= end_offset, "waits come in the order of the log"
        self._waits.append((end_offset, committed))

    def reached(self, high_watermark: int, error: ErrorCode) -> None:
        """Everything before the high watermark is committed; `error` where too few replicas are in sync now."""
        waits = self._waits
        while waits and waits[0][0] <= high_watermark:
            waits.popleft()[1](error)

    def fail(self, error: ErrorCode) -> None:
        """This replica will never know."""
        waits, self._waits = self._waits, deque()
        for _, committed in waits:
            committed(error)

    def __bool__(self) -> bool:
        return bool(self._waits)
