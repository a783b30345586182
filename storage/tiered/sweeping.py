"""The search for orphans: objects in a storage that belong to no segment of the metadata.

A copy writes its record before its first object. So an object in a listing is an orphan if no record that was read
*after* the listing names its segment. It is left from a put that was reported as failed, from an interrupted removal,
or from a topic whose last leader ended before it had deleted everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.layout import PINS_PREFIX, PROBES_PREFIX, TOPICS_PREFIX, ObjectKind, SegmentObject, parse_key
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.pins import LIFETIME_MAX_MS, read_pin
from moldau.storage.tiered.port import CorruptObject, ObjectEntry, ObjectNotFound, RemoteStorage, list_all

DELETE_COUNT: Final = 500


class Orphan(NamedTuple):
    """An object that may be deleted."""

    entry: ObjectEntry
    reason: str


class OrphanSearchResult(NamedTuple):
    """The result of a search for orphaned objects."""

    orphans: Sequence[Orphan]
    """The orphans, manifests first."""
    young: Sequence[Orphan]
    """Objects that would be orphans if they were older."""
    unknown: Sequence[ObjectEntry]
    """Objects whose keys are not those of segment objects. They are never deleted."""


def find_orphans(
    listing: Iterable[ObjectEntry],
    remote_logs: dict[RemotePartition, RemoteLog],
    topic_exists: Callable[[RemotePartition], bool],
    before_ms: int,
) -> OrphanSearchResult:
    """Return the orphans in a listing of `topics/`. `remote_logs` is metadata that was read after the listing.

    An object is not an orphan if it was put, or its segment was last described by a record, at or after `before_ms`.
    """
    segments = {
        (partition, each.segment_id): each for partition, known in remote_logs.items() for each in known.segments()
    }
    found: list[tuple[bool, Orphan]] = []
    young: list[Orphan] = []
    unknown: list[ObjectEntry] = []
    for entry in listing:
        named = parse_key(entry.key)
        if named is None:
            unknown.append(entry)
            continue
        segment = segments.get((named.partition, named.segment_id))
        reason = _reason(named, segment, topic_exists)
        if reason is None:
            continue
        latest_ms = max(entry.modified_ms, segment.event_timestamp_ms if segment is not None else 0)
        if latest_ms < before_ms:
            found.append((named.kind is not ObjectKind.MANIFEST, Orphan(entry, reason)))
        else:
            young.append(Orphan(entry, reason))
    return OrphanSearchResult([each for _, each in sorted(found, key=lambda each: each[0])], young, unknown)


def _reason(
    named: SegmentObject, segment: RemoteSegment | None, topic_exists: Callable[[RemotePartition], bool]
) -> str | None:
    partition = named.partition
    if segment is None:
        place = f"{partition.topic}-{partition.partition}"
        return f"the segment {uuid_text(named.segment_id)} is in no metadata of {place}"
    if segment.start_offset != named.start_offset:
        return f"the metadata says that the segment begins at offset {segment.start_offset}"
    if not topic_exists(partition):
        return f"the topic {partition.topic} with the id {uuid_text(partition.topic_id)} does not exist any more"
    return None


async def stale_probes_and_pins(storage: RemoteStorage, before_ms: int, now_ms: int) -> AsyncIterator[Orphan]:
    """Yield the probes of interrupted starts, and the expired pins, that were put before `before_ms`. A pin that cannot
    be read has expired when no pin of its age can be in force.

    Raises `RemoteStorageError`.
    """
    async for entry in list_all(storage, PROBES_PREFIX):
        if entry.modified_ms < before_ms:
            yield Orphan(entry, "the start of a broker did not remove it")
    async for entry in list_all(storage, PINS_PREFIX):
        if entry.modified_ms < before_ms:
            try:
                pin = await read_pin(storage, entry.key)
            except ObjectNotFound:
                continue
            except CorruptObject as bad:
                if now_ms - entry.modified_ms >= LIFETIME_MAX_MS:
                    yield Orphan(entry, f"the pin cannot be read, and has expired: {bad}")
                continue
            if not pin.is_in_force(now_ms):
                yield Orphan(entry, "the pin has expired")


async def listed_objects(storage: RemoteStorage) -> list[ObjectEntry]:
    """List all objects of all segments in the storage; each takes some 200 bytes of memory. Raises
    `RemoteStorageError`."""
    return [entry async for entry in list_all(storage, TOPICS_PREFIX)]


async def delete_orphans(storage: RemoteStorage, found: Sequence[Orphan]) -> None:
    """Delete orphans in the order of `found`. Raises `RemoteStorageError`; some may be deleted then."""
    keys = [each.entry.key for each in found]
    for start in range(0, len(keys), DELETE_COUNT):
        await storage.delete(keys[start : start + DELETE_COUNT])
