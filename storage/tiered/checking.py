"""The check at the start of a broker: its remote storage works, and belongs to its cluster."""

from __future__ import annotations

from typing import Final

from moldau.storage.tiered.errors import (
    AccessRefused,
    CorruptObject,
    ObjectExists,
    ObjectNotFound,
    WrongCluster,
)
from moldau.storage.tiered.layout import CLUSTER_MANIFEST, PROBES
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, decode_cluster_manifest, encode_cluster_manifest
from moldau.storage.tiered.port import RemoteStorage, get_all

PROBE: Final = b"moldau writes, reads, lists and removes this object when it starts\n"


async def check_storage(storage: RemoteStorage, cluster_id: str, probe_name: str) -> None:
    """Check that the storage exists, belongs to this cluster, and takes writes, reads, lists and deletions.

    A storage that belongs to no cluster yet is claimed for this one. `probe_name` is unique to this start of the
    broker. Raises `RemoteStorageError`; the message says which step failed.
    """
    await claim_storage(storage, cluster_id)
    key = PROBES + probe_name
    try:
        await storage.put(key, PROBE)
    except AccessRefused as refused:
        raise AccessRefused(f"remote storage can be read, but not be written: {refused}") from refused
    try:
        if bytes(await storage.get(key, 0, 1 << 10)) != PROBE:
            raise CorruptObject(f"remote storage returned other bytes of {key} than were put")
        await storage.list(PROBES, limit=1)
    finally:
        await storage.delete([key])


async def claim_storage(storage: RemoteStorage, cluster_id: str) -> None:
    """Check the manifest of the cluster, and write it where there is none. Raises `RemoteStorageError`: `WrongCluster`
    where the storage belongs to another cluster, and others."""
    try:
        await check_cluster(storage, cluster_id)
    except ObjectNotFound:
        try:
            await storage.put(CLUSTER_MANIFEST, encode_cluster_manifest(cluster_id), must_create=True)
        except ObjectExists:
            await check_cluster(storage, cluster_id)


async def check_cluster(storage: RemoteStorage, cluster_id: str) -> None:
    """Compare the manifest of the cluster with a cluster id. Raises `RemoteStorageError`: `WrongCluster`,
    `ObjectNotFound` where the storage belongs to no cluster yet, and others."""
    data = await get_all(storage, CLUSTER_MANIFEST, MANIFEST_SIZE_MAX)
    owner = decode_cluster_manifest(CLUSTER_MANIFEST, data)
    if owner != cluster_id:
        raise WrongCluster(f"this remote storage belongs to the cluster {owner}, not to {cluster_id}")
