"""The figures of a report: the counts of each topic, each partition, each key and each group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

FORMAT_VERSION: Final = 1
"""The version of the JSON format of a report."""
BUCKETS_MAX: Final = 60
WIDTHS_S: Final = (1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800)
"""The widths of time buckets (seconds). A longer span of time gets multiples of the last width."""


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """Consecutive time buckets: bucket i is [start + i * width, start + (i + 1) * width), in seconds since 1970."""

    start_s: int
    width_s: int
    count: int


def buckets_between(first_s: int, last_s: int, width_s: int | None = None) -> TimeBuckets:
    """Return at most `BUCKETS_MAX` time buckets that hold the seconds from the first to the last. If a width needs more
    buckets, it is doubled until it does not."""
    width = width_s or WIDTHS_S[-1]
    if width_s is None:
        width = next((each for each in WIDTHS_S if _count(first_s, last_s, each) <= BUCKETS_MAX), width)
    while _count(first_s, last_s, width) > BUCKETS_MAX:
        width *= 2
    return TimeBuckets(first_s // width * width, width, _count(first_s, last_s, width))


def _count(first_s: int, last_s: int, width: int) -> int:
    return last_s // width - first_s // width + 1


@dataclass(slots=True)
class PartitionFigures:
    """The offsets of one partition, and the counts of its records, bytes and segments. All are from the replica that
    was read."""

    partition: int
    log_start_offset: int
    high_watermark: int
    records: int = 0
    """The number of records below the high watermark, without control records."""
    bytes: int = 0
    """The stored bytes of the batches of these records."""
    local_bytes: int = 0
    local_segments: int = 0
    remote_bytes: int = 0
    remote_segments: int = 0


@dataclass(slots=True)
class BucketFigures:
    """The records and bytes in a time bucket. A batch counts in the bucket of its largest timestamp."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key and the number of its records, which is between `records` and `records_max`."""

    key: bytes
    records: int
    records_max: int


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """The keys with the most records in one topic, and the number of its distinct keys."""

    hot: tuple[HotKey, ...]
    without_key: int
    """The number of records without a key."""
    distinct: int
    """The number of distinct keys; a lower bound if the counts are not exact."""
    missed_max: int
    """The most records of a key that was dropped for lack of memory. If it is 0, all counts are exact."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group on a topic."""

    group: str
    records: int
    """The high watermarks minus the committed offsets, summed over the partitions with a committed offset."""
    partitions: dict[int, int]
    """The lag on each of these partitions."""
    committed_ms: int | None
    """The time of the group's last commit (ms since 1970)."""


@dataclass(slots=True)
class TopicFigures:
    """The statistics of one topic in a report: its records and bytes, by partition and by time, its most frequent keys,
    and the lag of its consumer groups."""

    topic: str
    partitions: list[PartitionFigures] = field(default_factory=list)
    first_s: int | None = None
    last_s: int | None = None
    """The smallest and the largest timestamp, in seconds since 1970; None if no record has one."""
    buckets: list[BucketFigures] = field(default_factory=list)
    outside: int = 0
    """The number of records whose timestamps are in none of the time buckets."""
    codecs: dict[str, int] = field(default_factory=dict)
    """The bytes of the batches by codec."""
    batches: int = 0
    aborted: int = 0
    """The number of records of aborted transactions. They are among `records`."""
    keys: KeyFigures | None = None
    groups: list[GroupLag] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def records_skew(self) -> float:
        return skew_of([each.records for each in self.partitions])

    @property
    def bytes_skew(self) -> float:
        return skew_of([each.bytes for each in self.partitions])

    def as_json(self) -> dict[str, object]:
        described = asdict(self)
        described |= {"records": self.records, "bytes": self.bytes}
        described |= {"records_skew": self.records_skew, "bytes_skew": self.bytes_skew}
        if self.keys is not None:
            described["keys"]["hot"] = [
                {"key": shown_key(each.key), "records": each.records, "records_max": each.records_max}
                for each in self.keys.hot
            ]
        return described


@dataclass(frozen=True, slots=True)
class Report:
    """A report on topics of a cluster: the statistics of each topic, and remarks on what is missing."""

    cluster_id: str | None
    buckets: TimeBuckets | None
    """The time buckets of all topics; None if no record has a timestamp."""
    topics: Sequence[TopicFigures]
    remarks: Sequence[str] = ()
    """Sentences that say what the report could not show, and why."""

    def as_json(self) -> str:
        described = {
            "format_version": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "buckets": asdict(self.buckets) if self.buckets else None,
            "remarks": list(self.remarks),
            "topics": [each.as_json() for each in self.topics],
        }
        return json.dumps(described)


def skew_of(sizes: Sequence[int]) -> float:
    """The skew of sizes: the largest size divided by the mean size. It is 1 if all sizes are equal, or if their sum is
    0."""
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if total else 1.0


def shown_key(key: bytes) -> str:
    """A key as text: itself if it is printable UTF-8, else its hexadecimal digits after 0x."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() and text else f"0x{key.hex()}"
