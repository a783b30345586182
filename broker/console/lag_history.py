"""The lag of groups in the last hour: a point each minute, from the first look at the page of groups on.

    a visit ──▶ sampling, until `PATIENCE_MS` after the last visit ──▶ a ring of `POINTS` for each group

The rings of at most `GROUPS_MAX` groups are kept, 8 bytes a point: 300 kB in all. A node whose pages about groups are
not opened takes no points.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

POINTS: Final = 60
PERIOD_MS: Final = 60_000
PATIENCE_MS: Final = 3_600_000
"""The time (ms) after the last visit in which sampling goes on."""
GROUPS_MAX: Final = 500
UNKNOWN: Final = -1


class LagHistory:
    """The points of all groups. Times are those of the monotonic clock (ms)."""

    def __init__(self) -> None:
        self._rings: dict[str, array[int]] = {}
        self._tick = 0
        self._visited_ms = 0
        self.is_sampling = False

    def visited(self, now_ms: int) -> bool:
        """A user looks at groups. Returns whether the caller has to begin sampling."""
        self._visited_ms = now_ms
        begins = not self.is_sampling
        self.is_sampling = True
        return begins

    def goes_on(self, now_ms: int) -> bool:
        """Whether the next point is taken. Otherwise the points are dropped."""
        if now_ms - self._visited_ms <= PATIENCE_MS:
            return True
        self.is_sampling = False
        self._rings.clear()
        return False

    def add(self, lags: Mapping[str, int | None]) -> None:
        """Add a point: the records of each group; None if they are not known. Groups that are gone are dropped."""
        self._tick += 1
        kept = {group_id: self._rings[group_id] for group_id in self._rings if group_id in lags}
        for group_id, records in lags.items():
            ring = kept.get(group_id)
            if ring is None:
                if len(kept) >= GROUPS_MAX:
                    continue
                ring = kept[group_id] = array("q", [UNKNOWN] * POINTS)
            ring[self._tick % POINTS] = UNKNOWN if records is None else records
        self._rings = kept

    def of(self, group_id: str) -> list[int | None]:
        """The points of a group, the oldest first, from the first known one on; empty for none."""
        ring = self._rings.get(group_id)
        if ring is None:
            return []
        split = (self._tick + 1) % POINTS
        points = [None if each == UNKNOWN else each for each in (*ring[split:], *ring[:split])]
        known = next((place for place, each in enumerate(points) if each is not None), POINTS)
        return points[known:]


def outline(points: list[int | None], width: int, height: int) -> str:
    """The points as those of an SVG polyline, the newest at the right edge; unknown ones are left out."""
    most = max((each for each in points if each is not None), default=0) or 1
    step = width / (POINTS - 1)
    first = width - step * (len(points) - 1)
    return " ".join(
        f"{first + step * place:.0f},{height - height * each / most:.0f}"
        for place, each in enumerate(points)
        if each is not None
    )
