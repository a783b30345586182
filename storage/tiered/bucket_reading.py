"""Reading remote storage without a broker: the manifests of a partition, and the choice of its current segments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol, TypeVar

from moldau.storage.tiered.layout import ObjectKind, object_key, parse_key, partition_prefix
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, SegmentManifest, decode_manifest
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound, RemoteStorage, WrongCluster, get_all, list_all


class ReplaceableSegment(Protocol):
    """The fields of a manifest that decide whether its segment is current: its offsets, its id, and the ids of the
    segments that it replaces.
    """

    @property
    def segment_id(self) -> bytes: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def cleaned_end_offset(self) -> int: ...

    @property
    def erased_end_offset(self) -> int: ...

    @property
    def ancestors(self) -> tuple[bytes, ...]: ...


S = TypeVar("S", bound=ReplaceableSegment)


async def manifest_keys(storage: RemoteStorage, partition: RemotePartition) -> AsyncIterator[str]:
    """Yield the keys of the manifests of a partition, by start offset. Raises `RemoteStorageError`."""
    async for entry in list_all(storage, partition_prefix(partition)):
        found = parse_key(entry.key)
        if found is not None and found.kind is ObjectKind.MANIFEST:
            yield entry.key


async def read_manifest(storage: RemoteStorage, cluster_id: str, key: str) -> SegmentManifest:
    """Read the manifest at a key, and check that it is of the segment that the key names. Raises `RemoteStorageError`:
    `ObjectNotFound`, `CorruptObject`, `WrongCluster` and others.
    """
    manifest = decode_manifest(key, await get_all(storage, key, MANIFEST_SIZE_MAX))
    check_segment_manifest(manifest, cluster_id, key)
    return manifest


def check_segment_manifest(manifest: SegmentManifest, cluster_id: str, key: str) -> None:
    """Raise `WrongCluster` if a segment's manifest is of another cluster, and `CorruptObject` if it is not of the
    segment that its key names.
    """
    if manifest.cluster_id != cluster_id:
        raise WrongCluster(f"{key} belongs to the cluster {manifest.cluster_id}, not to {cluster_id}")
    if key != object_key(manifest.partition, manifest.start_offset, manifest.segment_id, ObjectKind.MANIFEST):
        raise CorruptObject(f"{key} is the manifest of another segment than its key names")


async def current_manifests(
    storage: RemoteStorage, cluster_id: str, partition: RemotePartition
) -> list[SegmentManifest]:
    """Read the manifests of the segments that a reader without a broker has to read, by start offset. Segments that
    another one replaces are left out. Raises `RemoteStorageError`."""
    found: list[SegmentManifest] = []
    async for key in manifest_keys(storage, partition):
        try:
            found.append(await read_manifest(storage, cluster_id, key))
        except ObjectNotFound:
            continue  # The manifest was deleted after the listing.
    return current_segments(found)


def current_segments(manifests: Iterable[S]) -> list[S]:
    """Return the segments that no other segment replaces, by start offset.

    Two rewritten segments with the same offsets may exist for some minutes. Of these, the one that was erased further
    is returned, or else the one that was cleaned further.
    """
    found = sorted(
        manifests,
        key=lambda each: (each.start_offset, -each.last_offset, -each.erased_end_offset, -each.cleaned_end_offset),
    )
    replaced = {ancestor for each in found for ancestor in each.ancestors}
    chosen: list[S] = []
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
