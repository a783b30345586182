"""Reading whole objects of a remote segment, which are compared with its manifest. The .log object is written to a
local file; a small object is read into memory."""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.protocol.primitives import crc32c
from moldau.storage.files.port import FileSystem, Offload
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, RemoteStorage, get_all
from moldau.storage.tiered.segment_copy import get_manifest

CHUNK_SIZE: Final = 4 << 20


async def download_segment(
    storage: RemoteStorage,
    cluster_id: str,
    partition: RemotePartition,
    segment: RemoteSegment,
    fs: FileSystem,
    path: str,
    offload: Offload,
) -> None:
    """Download the .log object of a segment into the file `path`. Raises OSError, and `RemoteStorageError`:
    `CorruptObject` if the bytes are not those of the manifest; the file exists nevertheless."""
    manifest = await get_manifest(storage, cluster_id, partition, segment)
    key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LOG)
    file = await offload(partial(fs.open, path, create=True))
    try:
        await offload(partial(file.truncate, 0))
        position = crc = 0
        while position < segment.size:
            chunk = await storage.get(key, position, min(CHUNK_SIZE, segment.size - position))
            if not len(chunk):
                raise CorruptObject(f"{key} ends at {position}, the metadata says {segment.size}")
            crc = crc32c(chunk, crc)
            await offload(partial(file.append, [chunk]))
            position += len(chunk)
    finally:
        file.close()
    expected = manifest.objects[ObjectKind.LOG].crc32c
    if crc != expected:
        raise CorruptObject(f"{key} has the checksum {crc:08x}, its manifest says {expected:08x}")


async def get_object(
    storage: RemoteStorage, cluster_id: str, partition: RemotePartition, segment: RemoteSegment, kind: ObjectKind
) -> bytes:
    """Read a small object that the segment must have.

    Raises `RemoteStorageError`: `CorruptObject` if the object differs from the manifest.
    """
    manifest = await get_manifest(storage, cluster_id, partition, segment)
    key, summary = object_key(partition, segment.start_offset, segment.segment_id, kind), manifest.objects[kind]
    data = await get_all(storage, key, summary.size + 1)
    if (len(data), crc32c(data, 0)) != summary:
        raise CorruptObject(f"{key} does not have the size and the checksum that its manifest states")
    return data
