"""A cache of remote segments' indexes on the local disk, of limited size. A lookup in a remote segment reads them
first.

    <log directory>/remote-log-index-cache/<start offset>_<segment id>.index, .timeindex, .txnindex

The names are Apache Kafka's. An entry is loaded as a whole, compared with the manifest of its segment, and kept until
it is evicted. The cache starts empty: files of the previous start are removed, because a crash may have torn
them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

from protocol.checksum import crc32c
from storage.checkpoints.partition_metadata import uuid_text
from storage.files.port import FileSystem
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from storage.segment.transaction_index import TransactionIndex
from storage.tiered.errors import CorruptObject
from storage.tiered.layout import ObjectKind, object_key
from storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from storage.tiered.port import RemoteStorage, get_all
from storage.tiered.segment_copy import get_manifest

CACHE_DIRECTORY: Final = "remote-log-index-cache"
INDEX_KINDS: Final = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX)
INDEX_SIZE_MAX: Final = 1 << 30

T = TypeVar("T")
MakeLock = Callable[[], AbstractAsyncContextManager[object]]


class Offload(Protocol):
    """Runs blocking work outside of the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class RemoteIndexes:
    """The indexes of one remote segment. Their lookups read local files: cached pages as a rule, the disk at worst."""

    __slots__ = ("offset_index", "size", "time_index", "transaction_index", "use_count")

    def __init__(self, fs: FileSystem, stem: str, base_offset: int, size: int) -> None:
        self.offset_index = OffsetIndex(fs, stem + ObjectKind.OFFSET_INDEX.value, base_offset, read_only=True)
        self.time_index = TimeIndex(fs, stem + ObjectKind.TIME_INDEX.value, base_offset, read_only=True)
        self.transaction_index = TransactionIndex(fs, stem + ObjectKind.TRANSACTION_INDEX.value)
        """The transaction index; it is empty where the segment has none."""
        self.size = size
        """Size of the files in bytes."""
        self.use_count = 0

    def close(self) -> None:
        self.offset_index.entries.close()
        self.time_index.entries.close()
        self.transaction_index.close()


class RemoteIndexCache:
    """A cache of at most `size_max` bytes, with the least recently used entry evicted first.

    An entry in use is not evicted, so the cache is larger than the limit while entries of more bytes are in use.
    """

    def __init__(
        self, fs: FileSystem, log_directory: str, size_max: int, offload: Offload, make_lock: MakeLock
    ) -> None:
        self._fs = fs
        self._directory = f"{log_directory}/{CACHE_DIRECTORY}"
        self._size_max = size_max
        self._offload = offload
        self._make_lock = make_lock
        self._entries: OrderedDict[bytes, tuple[str, RemoteIndexes]] = OrderedDict()
        """The entries by segment id, the most recently used last; each with the common beginning of its files'
        names.
        """
        self._locks: dict[bytes, tuple[AbstractAsyncContextManager[object], int]] = {}
        """The locks by segment id, while an entry is loaded: the lock, and the number of callers that hold it or wait
        for it.
        """
        self.size = 0
        """Size of all entries in bytes."""
        self.hit_count = 0
        self.miss_count = 0

    def clear(self) -> None:
        """Remove the files of the previous start, and make the directory. Blocks. Raises OSError."""
        if self._fs.exists(self._directory):
            self._fs.remove_tree(self._directory)
        self._fs.make_directories(self._directory)

    def resize(self, size_max: int) -> list[str]:
        """Change the limit (bytes). Returns the paths of the files of evicted entries; the caller removes them."""
        self._size_max = size_max
        return self._push_out()

    async def open(
        self, storage: RemoteStorage, cluster_id: str, partition: RemotePartition, segment: RemoteSegment
    ) -> RemoteIndexes:
        """The indexes of a segment, loaded where the cache lacks them. The caller gives them back with `give_back`.

        Raises `RemoteStorageError`, `CorruptObject` among them, and OSError.
        """
        found = self._use(segment.segment_id)
        if found is not None:
            self.hit_count += 1
            return found
        lock, waiting_count = self._locks.get(segment.segment_id) or (self._make_lock(), 0)
        self._locks[segment.segment_id] = (lock, waiting_count + 1)
        try:
            async with lock:
                found = self._use(segment.segment_id)
                if found is None:
                    self.miss_count += 1
                    found = await self._load(storage, cluster_id, partition, segment)
                return found
        finally:
            lock, waiting_count = self._locks.pop(segment.segment_id)
            if waiting_count > 1:
                self._locks[segment.segment_id] = (lock, waiting_count - 1)

    async def give_back(self, indexes: RemoteIndexes) -> None:
        """The caller of `open` does not use the indexes any more. Raises OSError."""
        indexes.use_count -= 1
        await self._remove(self._push_out())

    async def forget(self, segment_id: bytes) -> None:
        """Drop the indexes of a segment that was deleted, or whose indexes are damaged. Raises OSError."""
        entry = self._entries.pop(segment_id, None)
        if entry is not None:
            await self._remove(self._drop(*entry))

    def close(self) -> None:
        """Close all files."""
        for _, indexes in self._entries.values():
            indexes.close()

    def _use(self, segment_id: bytes) -> RemoteIndexes | None:
        entry = self._entries.get(segment_id)
        if entry is None:
            return None
        self._entries.move_to_end(segment_id)
        entry[1].use_count += 1
        return entry[1]

    async def _load(
        self, storage: RemoteStorage, cluster_id: str, partition: RemotePartition, segment: RemoteSegment
    ) -> RemoteIndexes:
        manifest = await get_manifest(storage, cluster_id, partition, segment)
        loaded: dict[ObjectKind, bytes] = {}
        for kind in INDEX_KINDS:
            summary = manifest.objects.get(kind)
            if summary is None:
                continue
            key = object_key(partition, segment.start_offset, segment.segment_id, kind)
            data = await get_all(storage, key, min(summary.size + 1, INDEX_SIZE_MAX))
            if (len(data), crc32c(data, 0)) != summary:
                raise CorruptObject(f"{key} does not have the size and the checksum that its manifest states")
            loaded[kind] = data
        stem = f"{self._directory}/{segment.start_offset}_{uuid_text(segment.segment_id)}"
        indexes = await self._offload(lambda: self._write(stem, segment, loaded))
        indexes.use_count += 1
        self._entries[segment.segment_id] = (stem, indexes)
        self.size += indexes.size
        try:
            await self._remove(self._push_out())
        except BaseException:
            indexes.use_count -= 1  # The load failed, so the caller does not get the indexes.
            raise
        return indexes

    def _write(self, stem: str, segment: RemoteSegment, loaded: dict[ObjectKind, bytes]) -> RemoteIndexes:
        """Write the files, and open them. Blocks. They are not synced: the next start does not use them."""
        for kind, data in loaded.items():
            file = self._fs.open(stem + kind.value, create=True)
            try:
                file.truncate(0)
                file.append([data])
            finally:
                file.close()
        indexes = RemoteIndexes(self._fs, stem, segment.start_offset, sum(map(len, loaded.values())))
        try:
            if not indexes.offset_index.is_sound() or not indexes.time_index.is_sound():
                raise CorruptObject(f"the indexes of the segment {uuid_text(segment.segment_id)} are out of order")
            indexes.transaction_index.entries()
        except BaseException:
            indexes.close()
            raise
        return indexes

    def _push_out(self) -> list[str]:
        """Evict the least recently used entries until the rest fits. Returns the paths of their files."""
        paths: list[str] = []
        for segment_id, (stem, indexes) in list(self._entries.items()):
            if self.size <= self._size_max:
                break
            if not indexes.use_count:
                del self._entries[segment_id]
                paths += self._drop(stem, indexes)
        return paths

    def _drop(self, stem: str, indexes: RemoteIndexes) -> list[str]:
        self.size -= indexes.size
        indexes.close()
        return [stem + kind.value for kind in INDEX_KINDS]

    async def _remove(self, paths: list[str]) -> None:
        if paths:
            await self._offload(lambda: self._unlink(paths))

    def _unlink(self, paths: list[str]) -> None:
        for path in paths:
            if self._fs.exists(path):
                self._fs.unlink(path)
