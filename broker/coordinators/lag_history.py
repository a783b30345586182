"""The lag of groups in the last hour: one point each minute since the start of the node.

The lag exporter adds the points of the groups that this broker coordinates. At most `GROUPS_MAX` groups have points,
with 8 bytes a point: 300 kB in all.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

POINTS: Final = 60
PERIOD_MS: Final = 60_000
LAG_SETTING: Final = "moldau.lag.history"
"""The name of the setting of a group whose value is the group's lag history. DescribeConfigs has it only if the request
names it.
"""
GROUPS_MAX: Final = 500
UNKNOWN: Final = -1


class LagHistory:
    """The lag history of all groups. A point is the lag of a group in one minute: the number of records that it had not
    read.
    """

    def __init__(self) -> None:
        self._rings: dict[str, array[int]] = {}
        self._minute = 0

    def add(self, now_ms: int, lags: Mapping[str, int | None]) -> None:
        """Set the point of this minute for each group. `lags` has the number of records that a group has not read, None
        if it is not known. The points of groups that are not in `lags` are dropped. `now_ms` is of the monotonic clock.
        """
        self._pass_to(now_ms // PERIOD_MS)
        kept = {group_id: self._rings[group_id] for group_id in self._rings if group_id in lags}
        for group_id, records in lags.items():
            ring = kept.get(group_id)
            if ring is None:
                if len(kept) >= GROUPS_MAX:
                    continue
                ring = kept[group_id] = array("q", [UNKNOWN] * POINTS)
            ring[self._minute % POINTS] = UNKNOWN if records is None else records
        self._rings = kept

    def _pass_to(self, minute: int) -> None:
        """Advance to a minute, counted from the origin of the monotonic clock. The minutes without a sample get no
        points.
        """
        for passed in range(max(self._minute + 1, minute - POINTS + 1), minute + 1):
            for ring in self._rings.values():
                ring[passed % POINTS] = UNKNOWN
        self._minute = minute

    def points_of(self, group_id: str) -> list[int | None]:
        """The points of a group, one a minute, the oldest first. None is a minute without a known lag. The list begins
        with the first known point; it is empty if no point is known.
        """
        ring = self._rings.get(group_id)
        if ring is None:
            return []
        split = (self._minute + 1) % POINTS
        points = [None if each == UNKNOWN else each for each in (*ring[split:], *ring[:split])]
        known = next((place for place, each in enumerate(points) if each is not None), POINTS)
        return points[known:]
