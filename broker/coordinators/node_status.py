"""The status that a broker reports about itself: its release, its start time, its traffic, and the groups that lag
most.

    a point of the traffic every `POINT_MS`, the lags of each sample ──▶ NodeStatus ──▶ JSON ──▶ the console of any node

The lag exporter takes the points. A restart loses them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from moldau import __version__
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple
from moldau.security.access import Access, AclOperation, ResourceKind

STATUS_SETTING: Final = "moldau.node"
"""The name of the setting of a broker whose value is the broker's status. DescribeConfigs has it only if the request
names it.
"""
STATUS_MEANS: Final = "Release, start and traffic of the broker, and what lags most on it: JSON, for the console."
POINT_MS: Final = 15_000
POINTS: Final = 5
"""The number of traffic points that are kept. Rates are computed from them, so they are those of the last minute."""
LAGS_MAX: Final = 5


class TrafficPoint(NamedTuple):
    """The records and bytes since the start of a broker, as counted at a time (ms) of the monotonic clock."""

    at_ms: int
    records_in: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class WorstLag:
    """A partition that a group reads, and the number of records that the group has not read."""

    group: str
    topic: str
    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class ReportedStatus:
    """The status of a broker, as DescribeConfigs reports it. Rates are per second; they are None until two traffic
    points are taken.
    """

    version: str
    started_ms: int
    """The time at which the broker started, by the wall clock; 0 if it is not known."""
    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None
    lags: Sequence[WorstLag]
    """For at most `LAGS_MAX` groups, the partition with the largest lag of the group. The largest lag comes first."""

    @classmethod
    def from_json(cls, text: str) -> ReportedStatus:
        """Read a status from the value of `STATUS_SETTING`."""
        told = json.loads(text)
        return cls(**{**told, "lags": [WorstLag(**each) for each in told["lags"]]})


class NodeStatus:
    """The status of this broker."""

    def __init__(self) -> None:
        self.started_ms = 0
        self._points: deque[TrafficPoint] = deque(maxlen=POINTS)
        self._lags: Sequence[WorstLag] = ()

    def add_point(self, point: TrafficPoint) -> None:
        """Add a traffic point. The oldest one is dropped if there are more than `POINTS`."""
        self._points.append(point)

    def set_lags(self, lags: Iterable[WorstLag]) -> None:
        """Replace the lags by those of a new sample. `lags` has one entry for each group: the partition with the
        group's largest lag.
        """
        self._lags = sorted((each for each in lags if each.records), key=lambda each: -each.records)

    def told_to(self, access: Access) -> str:
        """The status as the value of `STATUS_SETTING`, with the lags that a user may see.

        DIVERGES: Apache Kafka has no such setting. Like the history of a group, the setting is described only for a
        request that names it.
        """

        def may(kind: ResourceKind, name: str) -> bool:
            return access.allows(AclOperation.DESCRIBE, kind, name, logs_denied=False)

        lags: list[WorstLag] = []
        for each in self._lags:
            if len(lags) == LAGS_MAX:
                break
            if may(ResourceKind.GROUP, each.group) and may(ResourceKind.TOPIC, each.topic):
                lags.append(each)
        return json.dumps(asdict(ReportedStatus(__version__, self.started_ms, *self._rates(), lags)))

    def _rates(self) -> tuple[float | None, float | None, float | None]:
        """The rates of records in, bytes in and bytes out, per second. All are None if there are fewer than two traffic
        points.
        """
        if len(self._points) < 2:
            return None, None, None
        first, last = self._points[0], self._points[-1]
        seconds = max(last.at_ms - first.at_ms, 1) / 1000

        def rate(begin: int, end: int) -> float:
            return round((end - begin) / seconds, 2)

        return (
            rate(first.records_in, last.records_in),
            rate(first.bytes_in, last.bytes_in),
            rate(first.bytes_out, last.bytes_out),
        )
