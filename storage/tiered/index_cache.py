"""A cache of remote segments' indexes on the local disk, of limited size. A lookup in a remote segment reads its
indexes first.

    <log directory>/remote-log-index-cache/<start offset>_<segment id>.index, .timeindex, .txnindex

The names are Apache Kafka's. An entry has the indexes of one segment. It is loaded as a whole, compared with the
manifest of the segment, and kept until it is evicted. The cache starts empty: files of the previous start are removed,
because a crash may have torn them.

An offset or time index is not used if it is missing, if it differs from the manifest, or if it is out of order because
it was damaged before its segment was copied. The indexes of that segment are then made from its .log object, which is
read once, and kept as others are. A transaction index that is missing or differs from the manifest is made from the
.log object, too (`batch_check.py`); if that is not possible, the segment cannot be read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, NamedTuple

from moldau.protocol.primitives import BytesLike
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.files.port import FileSystem, Offload
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.batch_scan import DamagedBatch
from moldau.storage.segment.sparse_index import OffsetIndex, TimeIndex
from moldau.storage.segment.transaction_index import TransactionIndex
from moldau.storage.tiered.batch_check import (
    SegmentBatchCheck,
    offset_index_problem,
    time_index_problem,
    transaction_index_builder_of,
)
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound, RemoteStorage
from moldau.storage.tiered.segment_copy import get_checked_object, get_manifest

CACHE_DIRECTORY: Final = "remote-log-index-cache"
INDEX_KINDS: Final = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX)
LOG_CHUNK_SIZE: Final = 1 << 20
"""The size (bytes) of one read of the .log object while indexes are made from it."""

MakeLock = Callable[[], AbstractAsyncContextManager[object]]
Report = Callable[[str], None]
"""A callback for the log of the broker: called with a sentence about damage that was found and repaired."""


class IndexProblem(NamedTuple):
    """An index object of a segment that cannot be used, and the reason."""

    kind: ObjectKind
    reason: str


class RemoteIndexes:
    """The indexes of one remote segment. Lookups read local files, usually from the page cache and else from disk."""

    __slots__ = ("offset_index", "size", "time_index", "transaction_index", "use_count")

    def __init__(self, fs: FileSystem, stem: str, base_offset: int, size: int) -> None:
        self.offset_index = OffsetIndex(fs, stem + ObjectKind.OFFSET_INDEX.value, base_offset, read_only=True)
        self.time_index = TimeIndex(fs, stem + ObjectKind.TIME_INDEX.value, base_offset, read_only=True)
        self.transaction_index = TransactionIndex(fs, stem + ObjectKind.TRANSACTION_INDEX.value)
        """The transaction index; it is empty if the segment has none."""
        self.size = size
        """The size of the index files in bytes."""
        self.use_count = 0

    def close(self) -> None:
        self.offset_index.entries.close()
        self.time_index.entries.close()
        self.transaction_index.close()


class RemoteIndexCache:
    """A cache of the indexes of remote segments, with at most `size_max` bytes. The least recently used entry is
    evicted first.

    An entry in use is not evicted, so the cache exceeds the limit while the entries in use have more bytes.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directory: str,
        size_max: int,
        offload: Offload,
        make_lock: MakeLock,
        report: Report = lambda _: None,
    ) -> None:
        self._report = report
        self._fs = fs
        self._directory = f"{log_directory}/{CACHE_DIRECTORY}"
        self._size_max = size_max
        self._offload = offload
        self._make_lock = make_lock
        self._entries: OrderedDict[bytes, tuple[str, RemoteIndexes]] = OrderedDict()
        """The entries by segment id, the most recently used last: the beginning that the paths of the files have in
        common, and the indexes."""
        self._locks: dict[bytes, tuple[AbstractAsyncContextManager[object], int]] = {}
        """The locks of the segments whose indexes are being loaded, by segment id: the lock, and the number of callers
        that hold it or wait for it."""
        self.size = 0
        """The size of all entries in bytes."""
        self.hit_count = 0
        self.miss_count = 0

    def clear(self) -> None:
        """Remove the files of the previous start, and make the cache directory. Blocks. Raises OSError."""
        if self._fs.exists(self._directory):
            self._fs.remove_tree(self._directory)
        self._fs.make_directories(self._directory)

    async def open_indexes(
        self,
        storage: RemoteStorage,
        cluster_id: str,
        partition: RemotePartition,
        segment: RemoteSegment,
        remote_log: RemoteLog | None = None,
    ) -> RemoteIndexes:
        """Return the indexes of a segment, loading them if they are not cached. The caller returns them with
        `release_indexes`.

        `remote_log`: finds the previous segment, if a transaction index must be rebuilt. Raises `RemoteStorageError`,
        its subclass `CorruptObject`, and OSError.
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
                    found = await self._load(storage, cluster_id, partition, segment, remote_log)
                return found
        finally:
            lock, waiting_count = self._locks.pop(segment.segment_id)
            if waiting_count > 1:
                self._locks[segment.segment_id] = (lock, waiting_count - 1)

    async def release_indexes(self, indexes: RemoteIndexes) -> None:
        """Release indexes that `open_indexes` has returned, and evict entries if the cache is too large. Raises
        OSError.
        """
        indexes.use_count -= 1
        await self._remove(self._push_out())

    def close(self) -> None:
        """Close the files of all entries."""
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
        self,
        storage: RemoteStorage,
        cluster_id: str,
        partition: RemotePartition,
        segment: RemoteSegment,
        remote_log: RemoteLog | None,
    ) -> RemoteIndexes:
        manifest = await get_manifest(storage, cluster_id, partition, segment)
        loaded: dict[ObjectKind, bytes] = {}
        problem: IndexProblem | None = None
        for kind in INDEX_KINDS:
            if kind not in manifest.objects:
                continue
            try:
                data = await get_checked_object(storage, partition, segment, manifest, kind)
            except (CorruptObject, ObjectNotFound) as unusable:
                if kind is not ObjectKind.TRANSACTION_INDEX:
                    problem = problem or IndexProblem(kind, str(unusable))
                    continue
                self._report(f"{unusable}. The transaction index is made from the batches of the segment")
                data = await self._aborted_of_batches(storage, cluster_id, partition, segment, remote_log)
            loaded[kind] = data
        problem = problem or await self._offload(lambda: _problem_of(segment, loaded))
        if problem is not None:
            key = object_key(partition, segment.start_offset, segment.segment_id, problem.kind)
            self._report(f"{key}: {problem.reason}. The indexes of the segment are made from its .log object")
            loaded |= await self._indexes_of_batches(storage, partition, segment)
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

    async def _aborted_of_batches(
        self,
        storage: RemoteStorage,
        cluster_id: str,
        partition: RemotePartition,
        segment: RemoteSegment,
        remote_log: RemoteLog | None,
    ) -> bytes:
        """Make the transaction index of a segment from the batches of its .log object. All batches must be undamaged.

        Raises `RemoteStorageError`, and its subclass `CorruptObject` if the index cannot be made.
        """
        walk = await transaction_index_builder_of(storage, cluster_id, partition, segment, remote_log)
        try:
            await self._read_log(storage, partition, segment, walk.add_piece)
            walk.check_complete()
        except DamagedBatch as damage:
            key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LOG)
            raise CorruptObject(f"{key}: {damage}") from None
        return walk.index

    async def _read_log(
        self,
        storage: RemoteStorage,
        partition: RemotePartition,
        segment: RemoteSegment,
        add: Callable[[BytesLike], None],
    ) -> None:
        """Read the .log object of a segment, and call `add` with one piece after another, outside of the event loop.
        Raises `RemoteStorageError`."""
        key, position = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LOG), 0
        while position < segment.size:
            piece = await storage.get(key, position, min(LOG_CHUNK_SIZE, segment.size - position))
            if not len(piece):
                raise CorruptObject(f"{key} ends at {position}, the metadata says {segment.size}")
            position += len(piece)
            await self._offload(partial(add, piece))

    async def _indexes_of_batches(
        self, storage: RemoteStorage, partition: RemotePartition, segment: RemoteSegment
    ) -> dict[ObjectKind, bytes]:
        """Make the offset index and the time index of a segment from the batches of its .log object, which is read as a
        whole.

        If a batch is damaged, both indexes end before the first damaged batch. They suffice for reads of earlier
        batches. A read of a later batch begins at the last index entry, so it finds the damaged batch. Raises
        `RemoteStorageError`.
        """
        defaults = LogConfig()
        limits = (defaults.index_interval_bytes, defaults.segment_index_bytes)
        check = SegmentBatchCheck(segment.start_offset, segment.last_offset + 1, segment.size, *limits)
        key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LOG)
        try:
            await self._read_log(storage, partition, segment, check.add_piece)
        except DamagedBatch as damage:
            self._report(f"{key}: {damage}, offset {check.next_offset}. The indexes of the segment end there")
        return {ObjectKind.OFFSET_INDEX: check.offset_index, ObjectKind.TIME_INDEX: check.time_index}

    def _write(self, stem: str, segment: RemoteSegment, loaded: dict[ObjectKind, bytes]) -> RemoteIndexes:
        """Write the index files of a segment, and open them. Blocks. The files are not synced, because the next start
        does not use them."""
        for kind, data in loaded.items():
            file = self._fs.open(stem + kind.value, create=True)
            try:
                file.truncate(0)
                file.append([data])
            finally:
                file.close()
        indexes = RemoteIndexes(self._fs, stem, segment.start_offset, sum(map(len, loaded.values())))
        try:
            indexes.transaction_index.entries()
        except BaseException:
            indexes.close()
            raise
        return indexes

    def _push_out(self) -> list[str]:
        """Evict the least recently used entries until the others fit. Returns the paths of the evicted files, which the
        caller removes."""
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


def _problem_of(segment: RemoteSegment, loaded: Mapping[ObjectKind, bytes]) -> IndexProblem | None:
    """The first problem of the loaded indexes of a segment; None if they can be trusted. Blocks for CPU time."""
    last_offset_delta = segment.last_offset - segment.start_offset
    offsets, times = loaded.get(ObjectKind.OFFSET_INDEX, b""), loaded.get(ObjectKind.TIME_INDEX, b"")
    reason = offset_index_problem(offsets, last_offset_delta, segment.size)
    if reason is not None:
        return IndexProblem(ObjectKind.OFFSET_INDEX, reason)
    reason = time_index_problem(times, last_offset_delta)
    return None if reason is None else IndexProblem(ObjectKind.TIME_INDEX, reason)
