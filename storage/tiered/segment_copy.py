"""Writing, reading and removing the objects of a segment: the manifest is written last, and removed first. What is read
is compared with the manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from moldau.protocol.primitives import BytesLike, crc32c
from moldau.storage.files.port import FileSystem, Offload
from moldau.storage.tiered.layout import DATA_KINDS, REQUIRED_KINDS, ObjectKind, object_key
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, ObjectSummary, SegmentManifest, decode_manifest
from moldau.storage.tiered.metadata.lineage import Lineage
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import Content, CorruptObject, RemoteStorage, get_all

CHUNK_SIZE: Final = 1 << 20
DOWNLOAD_CHUNK_SIZE: Final = 4 << 20
OBJECT_SIZE_MAX: Final = 1 << 30
"""The size (bytes) of the largest object that is read into memory."""
NO_LINEAGE: Final = Lineage(0, 0)

ReadRange = Callable[[int, int], Awaitable[BytesLike]]
"""A function that reads `size` bytes of a file at `position`, its two arguments, without blocking the event loop."""


class FileContent:
    """The first `size` bytes of a file as the content of a put, read in pieces."""

    def __init__(self, read: ReadRange, size: int, chunk_size: int = CHUNK_SIZE) -> None:
        self._read = read
        self._chunk_size = chunk_size
        self.size = size

    async def chunks(self) -> AsyncIterator[BytesLike]:
        position = 0
        while position < self.size:
            chunk = await self._read(min(self._chunk_size, self.size - position), position)
            assert len(chunk), f"the file ends at {position}, before {self.size}"
            position += len(chunk)
            yield chunk


class _Checksummed:
    """A content whose CRC-32C is computed while it is read; `crc` is complete at the end."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.crc = 0

    @property
    def size(self) -> int:
        return len(self._content) if isinstance(self._content, bytes) else self._content.size

    async def chunks(self) -> AsyncIterator[BytesLike]:
        assert not isinstance(self._content, bytes)
        self.crc = 0
        async for chunk in self._content.chunks():
            self.crc = crc32c(chunk, self.crc)
            yield chunk

    async def put(self, storage: RemoteStorage, key: str) -> ObjectSummary:
        if isinstance(self._content, bytes):
            self.crc = crc32c(self._content, 0)
            await storage.put(key, self._content)
        else:
            await storage.put(key, self)
        return ObjectSummary(self.size, self.crc)


async def put_segment(
    storage: RemoteStorage,
    cluster_id: str,
    partition: RemotePartition,
    segment: RemoteSegment,
    contents: Mapping[ObjectKind, Content],
    *,
    lineage: Lineage = NO_LINEAGE,
    ancestors: tuple[bytes, ...] = (),
) -> SegmentManifest:
    """Write all objects of a segment, the manifest last. `contents` has each of `REQUIRED_KINDS`, and the transaction
    index if the segment has one. Raises `RemoteStorageError`. Some objects may be written then, and `remove_segment`
    removes them."""
    assert all(kind in contents for kind in REQUIRED_KINDS)
    assert segment.has_transaction_index == (ObjectKind.TRANSACTION_INDEX in contents)
    objects: dict[ObjectKind, ObjectSummary] = {
        kind: await _Checksummed(contents[kind]).put(
            storage, object_key(partition, segment.start_offset, segment.segment_id, kind)
        )
        for kind in DATA_KINDS
        if kind in contents
    }
    assert objects[ObjectKind.LOG].size == segment.size, "the metadata and the file differ in size"
    manifest = SegmentManifest(
        cluster_id=cluster_id,
        partition=partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        last_offset=segment.last_offset,
        epochs=segment.epochs,
        max_timestamp_ms=segment.max_timestamp_ms,
        objects=objects,
        generation=lineage.generation,
        cleaned_end_offset=lineage.cleaned_end_offset,
        ancestors=ancestors,
        erased_end_offset=lineage.erased_end_offset,
    )
    await storage.put(manifest_key(partition, segment), manifest.encode())
    return manifest


async def get_manifest(
    storage: RemoteStorage, cluster_id: str, partition: RemotePartition, segment: RemoteSegment
) -> SegmentManifest:
    """Read the manifest of a segment, and compare it with the metadata of the segment. Raises `RemoteStorageError`:
    `ObjectNotFound`, `CorruptObject`, `WrongCluster` and others."""
    key = manifest_key(partition, segment)
    manifest = decode_manifest(key, await get_all(storage, key, MANIFEST_SIZE_MAX))
    manifest.check(cluster_id, partition, segment, key)
    return manifest


async def get_checked_object(
    storage: RemoteStorage,
    partition: RemotePartition,
    segment: RemoteSegment,
    manifest: SegmentManifest,
    kind: ObjectKind,
) -> bytes:
    """Read a small object that the manifest of a segment names. Raises `RemoteStorageError`: `CorruptObject` if the
    object differs from the manifest, and others."""
    key, summary = object_key(partition, segment.start_offset, segment.segment_id, kind), manifest.objects[kind]
    data = await get_all(storage, key, min(summary.size + 1, OBJECT_SIZE_MAX))
    if (len(data), crc32c(data, 0)) != summary:
        raise CorruptObject(f"{key} does not have the size and the checksum that its manifest states")
    return data


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
            chunk = await storage.get(key, position, min(DOWNLOAD_CHUNK_SIZE, segment.size - position))
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


def manifest_key(partition: RemotePartition, segment: RemoteSegment) -> str:
    return object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.MANIFEST)


async def remove_segment(
    storage: RemoteStorage, partition: RemotePartition, start_offset: int, segment_id: bytes
) -> None:
    """Remove all objects of a segment, the manifest first, so that a half removed segment never looks complete. A
    removal may be repeated, because it is not an error if an object does not exist. Raises `RemoteStorageError`."""
    await remove_manifest(storage, partition, start_offset, segment_id)
    await remove_data(storage, partition, start_offset, segment_id)


async def remove_manifest(
    storage: RemoteStorage, partition: RemotePartition, start_offset: int, segment_id: bytes
) -> None:
    """Remove the manifest of a segment, as the first step of a removal. Raises `RemoteStorageError`."""
    await storage.delete([object_key(partition, start_offset, segment_id, ObjectKind.MANIFEST)])


async def remove_data(storage: RemoteStorage, partition: RemotePartition, start_offset: int, segment_id: bytes) -> None:
    """Remove all objects of a segment except the manifest, as the second step of a removal. Raises
    `RemoteStorageError`."""
    await storage.delete([object_key(partition, start_offset, segment_id, kind) for kind in DATA_KINDS])
