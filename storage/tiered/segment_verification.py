"""Verification of a remote segment: every object is compared with its manifest, every batch with its checksum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from moldau.protocol.primitives import crc32c
from moldau.storage.checkpoints.leader_epochs import decode_epochs
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.manifest import ObjectSummary
from moldau.storage.tiered.metadata.lineage import NO_ANCESTORS, ancestor_digest, read_lineage
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound, RemoteStorage, WrongCluster, get_all
from moldau.storage.tiered.remote_lookup import batches_from
from moldau.storage.tiered.segment_copy import get_manifest

CHUNK_SIZE: Final = 4 << 20
BAD: Final = (CorruptObject, ObjectNotFound, WrongCluster)


@dataclass(slots=True)
class SegmentReport:
    """The result of verifying one remote segment."""

    problems: list[str] = field(default_factory=list)
    """The problems, one sentence each; empty if the segment is intact."""
    object_count: int = 0
    batch_count: int = 0
    bytes_read: int = 0


async def verify_segment(
    storage: RemoteStorage, cluster_id: str, partition: RemotePartition, segment: RemoteSegment
) -> SegmentReport:
    """Verify a segment whose copy is finished, by reading every byte. The report names missing and wrong objects.
    Raises `RemoteStorageError` if the storage does not answer."""
    report = SegmentReport()
    try:
        manifest = await get_manifest(storage, cluster_id, partition, segment)
    except BAD as bad:
        report.problems.append(str(bad))
        return report
    lineage = read_lineage(segment.custom_metadata)
    named = (len(manifest.ancestors), ancestor_digest(manifest.ancestors) if manifest.ancestors else NO_ANCESTORS)
    if lineage is not None and named != (lineage.ancestor_count, lineage.ancestor_digest):
        key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.MANIFEST)
        report.problems.append(f"{key} names other ancestors than the metadata")
    for kind, summary in manifest.objects.items():
        key = object_key(partition, segment.start_offset, segment.segment_id, kind)
        try:
            await _verify_bytes(storage, key, summary, report)
            await _verify_small(storage, key, kind, summary)
        except BAD as bad:
            report.problems.append(str(bad))
    if not report.problems:
        await _verify_batches(storage, partition, segment, report)
    return report


async def _verify_bytes(storage: RemoteStorage, key: str, summary: ObjectSummary, report: SegmentReport) -> None:
    size = await storage.size(key)
    if size != summary.size:
        raise CorruptObject(f"{key} has {size} bytes, its manifest says {summary.size}")
    position = crc = 0
    while position < size:
        chunk = await storage.get(key, position, CHUNK_SIZE)
        if not len(chunk):
            raise CorruptObject(f"{key} ends at {position}, before its size of {size}")
        crc = crc32c(chunk, crc)
        position += len(chunk)
        report.bytes_read += len(chunk)
    report.object_count += 1
    if crc != summary.crc32c:
        raise CorruptObject(f"{key} has the checksum {crc:08x}, its manifest says {summary.crc32c:08x}")


async def _verify_small(storage: RemoteStorage, key: str, kind: ObjectKind, summary: ObjectSummary) -> None:
    """Raise `CorruptObject` unless the object can be decoded, if it has the leader epochs or the producer snapshot. A
    follower starts from these two."""
    try:
        if kind is ObjectKind.LEADER_EPOCHS:
            decode_epochs(await get_all(storage, key, summary.size), key)
        elif kind is ObjectKind.PRODUCER_SNAPSHOT:
            decode_snapshot(await get_all(storage, key, summary.size))
    except (CorruptCheckpoint, CorruptSnapshot) as corrupt:
        raise CorruptObject(f"{key}: {corrupt}") from None


async def _verify_batches(
    storage: RemoteStorage, partition: RemotePartition, segment: RemoteSegment, report: SegmentReport
) -> None:
    next_offset = segment.start_offset
    try:
        async for batch in batches_from(storage, partition, segment, 0, chunk_size=CHUNK_SIZE):
            report.batch_count += 1
            if batch.header.base_offset < next_offset:
                raise CorruptObject(
                    f"the batch at position {batch.position} begins at offset {batch.header.base_offset}, "
                    f"before {next_offset}"
                )
            next_offset = batch.header.last_offset + 1
    except BAD as bad:
        report.problems.append(str(bad))
