"""Reading of remote storage without a broker: the manifests of a partition, and the choice of its current segments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from storage.tiered.errors import CorruptObject, ObjectNotFound, WrongCluster
from storage.tiered.layout import ObjectKind, parse_key, partition_prefix
from storage.tiered.manifest import MANIFEST_SIZE_MAX, SegmentManifest, decode_manifest
from storage.tiered.metadata.remote_segment import RemotePartition
from storage.tiered.port import RemoteStorage, get_all, list_all


async def manifest_keys(storage: RemoteStorage, partition: RemotePartition) -> AsyncIterator[str]:
    """The keys of the manifests of a partition, by start offset. Raises `RemoteStorageError`."""
    async for entry in list_all(storage, partition_prefix(partition)):
        found = parse_key(entry.key)
        if found is not None and found.kind is ObjectKind.MANIFEST:
            yield entry.key


async def read_manifest(storage: RemoteStorage, cluster_id: str, key: str) -> SegmentManifest:
    """The manifest at a key, which has to be of the segment that the key names. Raises `RemoteStorageError`:
    `ObjectNotFound`, `CorruptObject`, `WrongCluster` and others."""
    manifest = decode_manifest(key, await get_all(storage, key, MANIFEST_SIZE_MAX))
    if manifest.cluster_id != cluster_id:
        raise WrongCluster(f"{key} belongs to the cluster {manifest.cluster_id}, not to {cluster_id}")
    named = parse_key(key)
    said = (manifest.partition, manifest.start_offset, manifest.segment_id)
    if named is None or said != (named.partition, named.start_offset, named.segment_id):
        raise CorruptObject(f"{key} is the manifest of another segment than its key names")
    return manifest


async def current_manifests(
    storage: RemoteStorage, cluster_id: str, partition: RemotePartition
) -> list[SegmentManifest]:
    """The manifests of the segments that a reader without a broker reads, by start offset. Raises
    `RemoteStorageError`."""
    found: list[SegmentManifest] = []
    async for key in manifest_keys(storage, partition):
        try:
            found.append(await read_manifest(storage, cluster_id, key))
        except ObjectNotFound:
            continue  # The manifest was deleted after the listing.
    return current(found)


def current(manifests: Iterable[SegmentManifest]) -> list[SegmentManifest]:
    """The segments that no other segment replaces.

    Two cleanings of one range may both be there for some minutes; then the one that was cleaned further is current.
    """
    found = sorted(manifests, key=lambda each: (each.start_offset, -each.last_offset, -each.cleaned_end_offset))
    replaced = {ancestor for each in found for ancestor in each.ancestors}
    chosen: list[SegmentManifest] = []
    for each in found:
        if each.segment_id in replaced:
            continue
        before = chosen[-1] if chosen else None
        is_twin = before is not None and (each.start_offset, each.last_offset) == (
            before.start_offset,
            before.last_offset,
        )
        if not is_twin:
            chosen.append(each)
    return chosen
