"""The segments of a partition in a tiered storage: which of them are current, and which offsets are read from each of
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.bucket_reading import check_segment_manifest, current_segments
from moldau.storage.tiered.layout import ObjectKind, SegmentObject, parse_key, partition_prefix
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, decode_manifest
from moldau.storage.tiered.manifest_text import ManifestTexts
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.tables.origins.blocking_storage import BlockingStorage


class TieredSegment(NamedTuple):
    """The part of a segment's manifest that planning needs. It is small, because there may be a million segments."""

    stem: str
    """The part that the keys of all its objects have in common: a key without the suffix of its kind."""
    segment_id: bytes
    start_offset: int
    last_offset: int
    """The last offset of the segment (inclusive)."""
    size: int
    """The size of the .log object in bytes."""
    max_timestamp_ms: int
    epochs: tuple[EpochStart, ...]
    has_transaction_index: bool
    cleaned_end_offset: int
    ancestors: tuple[bytes, ...]
    erased_end_offset: int = 0

    def epoch_at(self, offset: int) -> int:
        """The leader epoch at an offset of this segment."""
        return max((each.epoch for each in self.epochs if each.start_offset <= offset), default=-1)


class SegmentRange(NamedTuple):
    """The offsets [start_offset, end_offset) that are read from one remote segment."""

    start_offset: int
    end_offset: int
    segment: TieredSegment


class TieredListing(NamedTuple):
    """The segments of a partition in a tiered storage."""

    segments: list[TieredSegment]
    """The segments that no other segment replaces, by start offset."""
    incomplete: list[SegmentObject]
    """One object of each segment that has no manifest. Such a segment is being copied or removed, or its manifest is
    lost."""


def list_tiered(storage: BlockingStorage, cluster_id: str, partition: RemotePartition) -> TieredListing:
    """List the objects of a partition, and read the manifests of its segments. Raises `RemoteStorageError`."""
    suffix = ObjectKind.MANIFEST.value
    prefix = partition_prefix(partition)
    texts = ManifestTexts(cluster_id, partition, prefix)

    def convert(key: str, data: bytes) -> TieredSegment:
        listed = texts.read(key, data)
        if listed is not None:
            segment_id, start, last, epochs, timestamp, cleaned_end, size, has_transaction_index = listed
            stem = key[: -len(suffix)]
            return TieredSegment(
                stem, segment_id, start, last, size, timestamp, epochs, has_transaction_index, cleaned_end, ()
            )
        manifest = decode_manifest(key, data)
        check_segment_manifest(manifest, cluster_id, key)
        return TieredSegment(
            key[: -len(suffix)],
            manifest.segment_id,
            manifest.start_offset,
            manifest.last_offset,
            manifest.objects[ObjectKind.LOG].size,
            manifest.max_timestamp_ms,
            manifest.epochs,
            ObjectKind.TRANSACTION_INDEX in manifest.objects,
            manifest.cleaned_end_offset,
            manifest.ancestors,
            manifest.erased_end_offset,
        )

    others: dict[str, str] = {}
    described: set[str] = set()

    def manifests() -> Iterator[str]:
        for entry in storage.list_all(prefix):
            stem = prefix + entry.key[len(prefix) :].partition(".")[0]
            if entry.key.endswith(suffix):
                described.add(stem)
                yield entry.key
            else:
                others.setdefault(stem, entry.key)

    segments = current_segments(storage.read_all(manifests(), MANIFEST_SIZE_MAX, convert))
    incomplete = [parse_key(key) for stem, key in others.items() if stem not in described]
    return TieredListing(segments, [each for each in incomplete if each is not None])


def offset_ranges_of(segments: Sequence[TieredSegment]) -> list[SegmentRange]:
    """Return the ranges of offsets that are read from the segments of a partition, in the order of offsets. `segments`
    is sorted by start offset. If segments overlap (two leaders copied one range), each offset is read from the segment
    with the higher leader epoch at that offset.
    """
    found: list[SegmentRange] = []
    group: list[TieredSegment] = []
    end_offset = 0
    for segment in segments:
        if group and segment.start_offset >= end_offset:
            found += _chosen(group)
            group = []
        group.append(segment)
        end_offset = max(end_offset, segment.last_offset + 1) if len(group) > 1 else segment.last_offset + 1
    return found + _chosen(group)


def _chosen(group: Sequence[TieredSegment]) -> list[SegmentRange]:
    """Return the ranges of offsets that are read from the segments of a group, all of which overlap."""
    if len(group) == 1:
        return [SegmentRange(group[0].start_offset, group[0].last_offset + 1, group[0])]
    bounds: set[int] = set()
    for each in group:
        bounds |= {each.start_offset, each.last_offset + 1}
        bounds |= {start for _, start in each.epochs if each.start_offset < start <= each.last_offset}
    found: list[SegmentRange] = []
    for start, end in pairwise(sorted(bounds)):
        there = [each for each in group if each.start_offset <= start <= each.last_offset]
        best = max(there, key=lambda each: (each.epoch_at(start), each.cleaned_end_offset, each.segment_id))
        if found and found[-1].segment is best:
            found[-1] = found[-1]._replace(end_offset=end)
        else:
            found.append(SegmentRange(start, end, best))
    return found
