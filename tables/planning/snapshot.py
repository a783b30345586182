"""A snapshot: the offsets of partitions at one time, and digests that show whether the files below them have changed.

```json
{"format_version": 1, "cluster_id": "4L6g3nShT-eMCtK--X86sw",
 "topics": {"orders": {"0": {"log_start_offset": 0, "high_watermark": 900, "last_stable_offset": 880,
                             "segments": 3, "bytes": 81234, "digest": "6f1c09ab2d5e7f10"}}}}
```
The digest is over the first offset and the size of each segment below the high watermark; of the segment that holds the
high watermark the bytes below it count. So appending, rolling and copying change nothing; retention and compaction do.

With `segment_list`, which has [first offset, bytes] of each segment, a query is refused only if segments from its start
on have changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias

from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.port import FileSystem
from moldau.tables.planning.partition_view import PartitionView
from moldau.tables.refusals import DataLost, Refused, SnapshotChanged

FORMAT_VERSION: Final = 1
DIGEST_DIGITS: Final = 16
UNCUT_SLICE_SIZE: Final = 1 << 62
"""The size (bytes) of a slice with which no segment is cut."""
SegmentList: TypeAlias = tuple[tuple[int, int], ...]
"""The segments of a partition in order: the first offset of each, and its bytes below the high watermark."""


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """The state of one partition in a snapshot."""

    topic_id: str | None
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    segments_count: int
    size: int
    digest: str
    segment_list: SegmentList | None = None
    """The list of segments; None if the snapshot has only the digest."""

    def changes(self, segments: SegmentList, start_offset: int) -> str | None:
        """Describe how `segments` differ from the snapshot's, for a query that reads from `start_offset` on. None if
        they do not differ there."""
        if digest_of(segments) == self.digest:
            return None
        if self.segment_list is None:
            size = sum(size for _, size in segments)
            return (
                f"{self.segments_count} segments of {self.size} bytes were below the high watermark, "
                f"{len(segments)} of {size} bytes are now"
            )
        before, now = segments_from(self.segment_list, start_offset), segments_from(segments, start_offset)
        if before == now:
            return None
        changed = sorted(set(before) ^ set(now))
        return f"the segment at offset {changed[0][0]} is not the one of the snapshot" if changed else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of partitions of a cluster at one time."""

    cluster_id: str | None
    partitions: Mapping[TopicPartition, PartitionSnapshot]

    def as_json(self, *, with_segments: bool = False) -> str:
        topics: dict[str, dict[str, dict[str, object]]] = {}
        for (topic, partition), each in sorted(self.partitions.items()):
            described: dict[str, object] = {"topic_id": each.topic_id} if each.topic_id else {}
            described |= {
                "log_start_offset": each.log_start_offset,
                "high_watermark": each.high_watermark,
                "last_stable_offset": each.last_stable_offset,
                "segments": each.segments_count,
                "bytes": each.size,
                "digest": each.digest,
            }
            if with_segments and each.segment_list is not None:
                described["segment_list"] = [list(pair) for pair in each.segment_list]
            topics.setdefault(topic, {})[str(partition)] = described
        return json.dumps({"format_version": FORMAT_VERSION, "cluster_id": self.cluster_id, "topics": topics})


def take_snapshot(cluster_id: str | None, views: Iterable[PartitionView]) -> Snapshot:
    """Make a snapshot of listed partitions. Raises OSError and `MalformedMessage`."""
    partitions = {}
    for view in views:
        segments = segments_below(view, view.high_watermark)
        topic_id = view.newest.topic_id
        partitions[view.key] = PartitionSnapshot(
            uuid_text(topic_id) if topic_id else None,
            view.log_start_offset,
            view.high_watermark,
            view.last_stable_offset(),
            len(segments),
            sum(size for _, size in segments),
            digest_of(segments),
            segments,
        )
    return Snapshot(cluster_id, partitions)


def segments_below(view: PartitionView, end_offset: int) -> SegmentList:
    """The segments with the offsets of a partition before `end_offset`. Raises `DataLost` if no origin has some of
    these offsets."""
    found = []
    for piece in view.pieces(view.log_start_offset, end_offset):
        if piece.offer is None or piece.segment is None:
            raise DataLost(f"{view}: offsets {piece.start_offset} to {piece.end_offset} are in no place")
        segment = piece.segment
        size = segment.size
        if segment.is_growing or piece.end_offset < segment.end_offset:
            cuts = piece.offer.cuts(segment, segment.start_offset, piece.end_offset, UNCUT_SLICE_SIZE)
            size = cuts[-1].end_position if cuts else 0
        found.append((segment.start_offset, size))
    return tuple(found)


def digest_of(segments: SegmentList) -> str:
    digest = sha256()
    for start_offset, size in segments:
        digest.update(b"%d %d\n" % (start_offset, size))
    return digest.hexdigest()[:DIGEST_DIGITS]


def segments_from(segments: SegmentList, offset: int) -> SegmentList:
    """The segments from the one that contains `offset` on."""
    following = [*(start for start, _ in segments[1:]), UNCUT_SLICE_SIZE]
    return tuple(pair for pair, end_offset in zip(segments, following, strict=bool(segments)) if end_offset > offset)


def check_unchanged(snapshot: Snapshot, view: PartitionView, start_offset: int) -> str | None:
    """Compare a partition with a snapshot, for a query that reads from `start_offset` on. Returns a text on how it
    differs; None if it does not differ.

    Raises `Refused` if the snapshot does not have the partition, and `SnapshotChanged` if it has another topic of the
    same name.
    """
    known = partition_in(snapshot, view)
    if view.log_start_offset > known.log_start_offset and start_offset < view.log_start_offset:
        return f"it began at offset {known.log_start_offset}, and begins at {view.log_start_offset} now"
    if view.high_watermark < known.high_watermark:
        return f"its high watermark was {known.high_watermark}, and is {view.high_watermark} now"
    return known.changes(segments_below(view, known.high_watermark), start_offset)


def partition_in(snapshot: Snapshot, view: PartitionView) -> PartitionSnapshot:
    """Return the state of a partition in a snapshot. Raises `Refused` if the snapshot does not have the partition, and
    `SnapshotChanged` if it has another topic of the same name."""
    known = snapshot.partitions.get(view.key)
    if known is None:
        raise Refused(f"snapshot: {view} is not in it")
    topic_id = view.newest.topic_id
    if known.topic_id is not None and topic_id is not None and known.topic_id != uuid_text(topic_id):
        raise SnapshotChanged(f"{view}: the snapshot is of topic {known.topic_id}, the files of {uuid_text(topic_id)}")
    return known


def read_snapshot(fs: FileSystem, given: str) -> Snapshot:
    """Read the snapshot in the option `snapshot`: JSON, or the path of a file with JSON. Raises
    `Refused` and OSError."""
    text = given.strip()
    try:
        parsed = json.loads(text if text.startswith("{") else fs.read(text))
        if parsed["format_version"] != FORMAT_VERSION:
            raise Refused(f"snapshot: format version {parsed['format_version']} is not {FORMAT_VERSION}")
        partitions = {
            (topic, int(partition)): _partition(described)
            for topic, numbered in parsed["topics"].items()
            for partition, described in numbered.items()
        }
        return Snapshot(parsed["cluster_id"], partitions)
    except Refused:
        raise
    except FileNotFoundError:
        raise Refused(f"snapshot: there is no file {text}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Refused(f"snapshot: this is none: {type(problem).__name__} {problem}") from None


def _partition(described: Mapping[str, object]) -> PartitionSnapshot:
    """Parse the JSON of one partition in a snapshot. Raises ValueError, KeyError and TypeError."""
    listed = described.get("segment_list")
    segment_list = None
    if listed is not None:
        if not isinstance(listed, list):
            raise ValueError("segment_list is not a list")
        segment_list = tuple((int(start), int(size)) for start, size in listed)
    topic_id = described.get("topic_id")
    numbers = ("log_start_offset", "high_watermark", "last_stable_offset", "segments", "bytes")
    start, high, stable, count, size = (_number(described[name]) for name in numbers)
    return PartitionSnapshot(
        str(topic_id) if topic_id else None, start, high, stable, count, size, str(described["digest"]), segment_list
    )


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a number")
    return value
