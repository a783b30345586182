"""Positions of batches at which reads ended lately: consumers and followers continue there."""

from __future__ import annotations

BOUNDARIES_KEPT = 16


class Boundaries:
    """Positions of batches in the active segment by base offset, the last `BOUNDARIES_KEPT` that were looked up.

    A reader at the tail asks for the offset at which its last read ended. Its position is then known without a lookup
    in the index and without a read of batch headers. Truncating or rolling the log must `clear` it.
    """

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}  # Position by base offset.

    def get(self, offset: int) -> int | None:
        """The position of the batch that begins at an offset, None where it is not remembered."""
        return self._positions.get(offset)

    def remember(self, offset: int, position: int) -> None:
        """Remember the position of a batch; the oldest entry is dropped when there are `BOUNDARIES_KEPT`."""
        positions = self._positions
        if offset not in positions:
            if len(positions) >= BOUNDARIES_KEPT:
                del positions[next(iter(positions))]
            positions[offset] = position

    def clear(self) -> None:
        self._positions.clear()
