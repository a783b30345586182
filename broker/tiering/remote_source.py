"""Reads records before the local log start offset from remote storage: a `RecordSource` of fetches, like the one of the
local log.

    read(offset) ──▶ kept from an earlier read?  ──▶ LocatedBatches, or the error, which is returned once
                 └▶ else PendingRemoteRead: a task reads    ──▶ the fetch waits, at most remote.fetch.max.wait.ms, then
                                                                asks again

At most `remote.log.reader.threads` reads are in progress, and `remote.log.reader.max.pending.tasks` wait. Fetches of
the same records share one read. A read that outlasts its fetch is kept for the next one, so that readers of a slow
storage still make progress. Kept reads take at most half of `moldau.tiered.read.cache.bytes`; the least recently used
are evicted first.

A fetch that begins where an earlier one ended belongs to a sequential reader. Its segment is read in blocks
(`block_cache.py`), `moldau.tiered.read.ahead.bytes` ahead of it and into the next segment. When its fetch is answered,
its next read begins at once. For any other reader only the requested bytes are read.

`SequentialReaders` detects sequential readers. `RemoteOffsets` finds offsets by time (ListOffsets).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.tiering.block_cache import BlockCache, SegmentBlocks
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataReader
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from moldau.broker.tiering.traffic import RemoteCount, RemoteTraffic, TransferQuota
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    parse_header,
)
from moldau.protocol.record_builder import assemble
from moldau.replication.partition import Partition
from moldau.replication.source import (
    NOTHING_FOUND,
    TXN_COMMITTED,
    FetchIsolation,
    LocatedBatches,
    PageCacheMiss,
    PendingRemoteRead,
    upper_bound,
)
from moldau.storage.files.memory_file import memory_slice
from moldau.storage.log.log import Log
from moldau.storage.log.reading import TimestampedOffset
from moldau.storage.segment.transaction_index import AbortedTransaction as AbortedRange
from moldau.storage.tiered.index_cache import RemoteIndexCache
from moldau.storage.tiered.metadata.leader_history import epoch_at, is_in_history
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.port import (
    ObjectNotFound,
    RemoteStorageError,
    StorageUnavailable,
    error_code_of_storage_error,
)
from moldau.storage.tiered.remote_lookup import RemoteRead, aborted_transactions, find_timestamp, read_batches_from

log = logging.getLogger("moldau.tiering")

SEQUENTIAL_MIN: Final = 2
"""The minimum number of consecutive fetches by which a reader counts as sequential."""
READ_SIZE_MAX: Final = 8 << 20
"""The maximum number of bytes of one read, even if the fetch allows more."""
FAILED_MAX: Final = 1_000
"""The maximum number of kept errors; the oldest are dropped first."""
FAILED_MS_MAX: Final = 10_000
"""The time (ms) for which the error of a read is kept. After that a fetch reads again."""
LOOK_AGAIN_COUNT: Final = 3
"""The maximum number of attempts of one read. If an object is missing, because its segment was replaced or deleted, the
next attempt looks up the segment again.
"""
PLACES_MAX: Final = 10_000
"""The maximum number of remembered ends of fetches; the oldest are dropped first."""


class ReadKey(NamedTuple):
    """The key of a read from remote storage. Reads with the same key give the same records."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    """The leader epoch of the record at `offset`."""
    offset: int
    segment_id: bytes
    """The segment that is read at `offset`. Another segment with that offset may have other records, because cleaning
    replaces segments.
    """
    is_committed: bool
    """Whether the read includes the aborted transactions, for a read_committed consumer (TXN_COMMITTED)."""

    @property
    def place(self) -> ReaderPlace:
        return ReaderPlace(self.topic_id, self.partition, self.offset)


class CachedRead(NamedTuple):
    """The result of a read: whole batches from an offset on, with the aborted transactions."""

    data: memoryview
    aborted: list[AbortedTransaction] | None
    next_offset: int
    """The offset after the last batch that was read."""
    end_position: int
    """The position in the segment's .log object at which the last batch ends."""


class RemoteSource:
    """A `RecordSource` of the records in remote storage. Its methods are called on the event loop; every read of the
    storage runs in its own task.
    """

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        spawn: Spawn,
        opened: OpenStorage,
        reader: RemoteLogMetadataReader,
        quota: TransferQuota,
        traffic: RemoteTraffic,
    ) -> None:
        self._quota = quota
        self._traffic = traffic
        config = settings.config
        self._settings = settings
        self._environment = environment
        self._spawn = spawn
        self._opened = opened
        self._reader = reader
        self._pending_max = config.integer("remote.log.reader.max.pending.tasks")
        self.indexes = RemoteIndexCache(
            environment.fs,
            config.log_dirs[0],
            config.integer("remote.log.index.file.cache.total.size.bytes"),
            environment.offload,
            asyncio.Lock,
            log.warning,
        )
        self._under_way: dict[ReadKey, PendingRemoteRead] = {}
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = 0
        self._kept: OrderedDict[ReadKey, CachedRead] = OrderedDict()
        self._kept_size = 0
        self._kept_size_max = config.integer("moldau.tiered.read.cache.bytes") // 2
        self._ahead_size = min(config.integer("moldau.tiered.read.ahead.bytes"), self._kept_size_max)
        self._readers = SequentialReaders()
        self._blocks = BlockCache(opened, spawn, self._kept_size_max, self._note_read)
        self._failed: dict[ReadKey, tuple[int, ErrorCode]] = {}
        """The failed reads, each with the time (ms) of its failure and the error for the fetch."""
        self.reads = 0
        self.bytes_read = 0
        self.failures = 0
        self.reads_ended = 0
        self.read_ms = 0.0
        """The total duration (ms) of the reads that have ended."""

    def find_batches(
        self,
        partition: Partition,
        offset: int,
        size_max: int,
        isolation: FetchIsolation,
        at_least_one: bool,
        waits: bool,
    ) -> LocatedBatches | PageCacheMiss | PendingRemoteRead | ErrorCode:
        """The records at an offset, as `RecordSource.find_batches` returns them. Errors:

        - KAFKA_STORAGE_ERROR, after which clients try again, while the storage or the metadata cannot be read, and if
        too many reads wait.
        - UNKNOWN_SERVER_ERROR if the segment is damaged (`error_code_of_storage_error`).
        - OFFSET_OUT_OF_RANGE if no remote segment has the offset.
        """
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or not self._opened.is_checked:
            return ErrorCode.KAFKA_STORAGE_ERROR
        epoch = epoch_at(followed.epochs_of(partition.log), offset)
        segment = followed.remote_log.find_segment(epoch, offset) if epoch is not None else None
        if epoch is None or segment is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        is_committed = isolation is TXN_COMMITTED
        key = ReadKey(partition.topic_id, partition.index, epoch, offset, segment.segment_id, is_committed)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            located = _located(kept, size_max, at_least_one, upper_bound(partition, isolation))
            self._served(key, kept, located.size, size_max, partition, followed)
            return located
        failed_ms, failed = self._failed.pop(key, (0, None))
        if failed is not None and self._environment.monotonic_ms() - failed_ms < FAILED_MS_MAX:
            return failed
        under_way = self._under_way.get(key)
        if under_way is None:
            if self._quota.is_exceeded():
                return NOTHING_FOUND  # A fetch past the end: other partitions of the request are answered.
            if len(self._waiting) >= self._pending_max:
                return ErrorCode.KAFKA_STORAGE_ERROR
            under_way = self._start(key, partition.log, followed, min(max(size_max, HEADER_SIZE), READ_SIZE_MAX))
        return under_way

    def _start(self, key: ReadKey, its_log: Log, followed: FollowedRemoteLog, size: int) -> PendingRemoteRead:
        remote = self._under_way[key] = PendingRemoteRead()
        self._begin(lambda: self._spawn(self._run(key, remote, its_log, followed, size), "remote-read"))
        return remote

    def _served(
        self,
        key: ReadKey,
        kept: CachedRead,
        size: int,
        size_max: int,
        partition: Partition,
        followed: FollowedRemoteLog,
    ) -> None:
        """Remember the end of a fetch, which was answered with the first `size` bytes of a read. If its reader is
        sequential, begin the next read.
        """
        next_offset, end_position = _end_of(kept, size)
        if next_offset <= key.offset:
            return  # The read has less than a whole batch.
        streak = self._readers.record_fetch(key.place, next_offset, key.segment_id, end_position)
        if streak < SEQUENTIAL_MIN or not self._ahead_size or next_offset >= partition.log.local_start_offset:
            return
        epoch = epoch_at(followed.epochs_of(partition.log), next_offset)
        segment = followed.remote_log.find_segment(epoch, next_offset) if epoch is not None else None
        if epoch is None or segment is None or self._quota.throttle_ms():
            return
        later = key._replace(leader_epoch=epoch, offset=next_offset, segment_id=segment.segment_id)
        has_room = self._running < self._settings.config.integer("remote.log.reader.threads")
        if has_room and later not in self._kept and later not in self._under_way and later not in self._failed:
            self._start(later, partition.log, followed, min(max(size_max, HEADER_SIZE), READ_SIZE_MAX))

    @property
    def waiting_count(self) -> int:
        """The number of reads that wait until others have ended."""
        return len(self._waiting)

    @property
    def idle_share(self) -> float:
        """The unused share of the reads that may run in parallel, 0 to 1."""
        return max(0.0, 1 - self._running / self._settings.config.integer("remote.log.reader.threads"))

    def _begin(self, start: Callable[[], object]) -> None:
        if self._running < self._settings.config.integer("remote.log.reader.threads"):
            self._running += 1
            start()
        else:
            self._waiting.append(start)

    async def _run(
        self, key: ReadKey, remote: PendingRemoteRead, its_log: Log, followed: FollowedRemoteLog, size_max: int
    ) -> None:
        topic = followed.key.topic
        began_ns = self._environment.precise_ns()
        self._traffic.count(topic, RemoteCount.FETCH_REQUESTS)
        try:
            self._keep(key, await self._read(key, its_log, followed, size_max))
        except (RemoteStorageError, OSError) as error:
            self.failures += 1
            self._traffic.count(topic, RemoteCount.FETCH_ERRORS)
            self._note_failed(key, error_code_of_storage_error(error))
            log.error("offset %d of %s-%d cannot be read remotely: %s", key.offset, topic, key.partition, error)
        finally:
            self.reads_ended += 1
            self.read_ms += (self._environment.precise_ns() - began_ns) / 1e6
            del self._under_way[key]
            self._running -= 1
            if self._waiting:
                self._running += 1
                self._waiting.popleft()()
        remote.mark_done()

    async def _read(self, key: ReadKey, its_log: Log, followed: FollowedRemoteLog, size_max: int) -> CachedRead:
        offset, epoch = key.offset, key.leader_epoch
        for attempt in range(LOOK_AGAIN_COUNT):
            segment = followed.remote_log.find_segment(epoch, offset)
            if segment is None:
                raise ObjectNotFound(f"no remote segment has offset {offset} any more")
            try:
                found = await self._read_segment(key, its_log, followed, segment, size_max)
                if found is None:
                    nothing = memoryview(empty_batch_to(segment, epoch, offset))
                    return CachedRead(nothing, [], segment.last_offset + 1, segment.size)
                aborted = None
                if key.is_committed:
                    aborted = await self._aborted(its_log, followed, epoch, offset, found.next_offset, segment)
            except ObjectNotFound:
                if attempt + 1 == LOOK_AGAIN_COUNT:
                    raise
            else:
                self.reads += 1
                return CachedRead(found.data, aborted, found.next_offset, found.end_position)
        raise AssertionError("the last attempt raises or returns")

    async def _read_segment(
        self, key: ReadKey, its_log: Log, followed: FollowedRemoteLog, segment: RemoteSegment, size_max: int
    ) -> RemoteRead | None:
        """Read the batches of a segment from an offset on, through the block cache if the reader is sequential."""
        came = self._readers.streak_at(key.place)
        if came is not None and came.segment_id == segment.segment_id:
            position = came.position
        else:
            # The manifest is compared with the metadata even at the start of a segment, before anything is served.
            position = await self._position(followed, segment, key.offset)
        if came is None or not self._ahead_size:
            found = await read_batches_from(self._opened.storage, followed.key, segment, position, key.offset, size_max)
            if found is not None:
                self._note_read(followed.key.topic, len(found.data))
            return found
        self._read_ahead(its_log, followed, segment, position)
        blocks = SegmentBlocks(self._blocks, followed.key, segment)
        found = await read_batches_from(blocks, followed.key, segment, position, key.offset, size_max)
        if found is None or 2 * found.data.nbytes > memoryview(found.data.obj).nbytes:
            return found
        # A copy, because a few records should not keep the memory of a whole block.
        return found._replace(data=memoryview(bytes(found.data)))

    def _read_ahead(self, its_log: Log, followed: FollowedRemoteLog, segment: RemoteSegment, position: int) -> None:
        """Begin to read the blocks ahead of a position of a segment, and into the next segment if the end is near."""
        ahead = self._ahead_size
        while True:
            SegmentBlocks(self._blocks, followed.key, segment).read_ahead(position, ahead)
            ahead -= segment.size - position
            next_offset, position = segment.last_offset + 1, 0
            epoch = epoch_at(followed.epochs_of(its_log), next_offset)
            following = (
                followed.remote_log.find_segment(epoch, next_offset) if epoch is not None and ahead > 0 else None
            )
            if following is None or next_offset >= its_log.local_start_offset:
                return
            segment = following

    async def _position(self, followed: FollowedRemoteLog, segment: RemoteSegment, offset: int) -> int:
        """The position in the segment's .log object of a batch at or before an offset."""
        opened = self._opened
        indexes = await self.indexes.open_indexes(
            opened.storage, opened.cluster_id, followed.key, segment, followed.remote_log
        )
        try:
            find = indexes.offset_index.position_at_or_before
            return await self._environment.offload(lambda: find(offset))
        finally:
            await self.indexes.release_indexes(indexes)

    def _note_read(self, topic: str, size: int) -> None:
        self.bytes_read += size
        self._quota.record(size)
        self._traffic.count(topic, RemoteCount.FETCH_BYTES, size)

    async def _aborted(
        self,
        its_log: Log,
        followed: FollowedRemoteLog,
        epoch: int,
        first_offset: int,
        end_offset: int,
        read: RemoteSegment,
    ) -> list[AbortedTransaction]:
        """The aborted transactions that overlap the offsets from `first_offset` to `end_offset` (exclusive).

        `read` is the segment whose records are read. A transaction that ends after it may have its marker in a later
        segment or in the local log. A transaction that ends inside it counts only if its own index has the marker:
        compaction may have removed the marker from `read` but not from the local log, and by such a marker a client
        would skip later records of the producer.
        """
        opened = self._opened

        async def collect(segment: RemoteSegment) -> tuple[list[AbortedRange], bool]:
            indexes = await self.indexes.open_indexes(
                opened.storage, opened.cluster_id, followed.key, segment, followed.remote_log
            )
            try:
                index = indexes.transaction_index
                more, is_complete = await self._environment.offload(
                    lambda: index.overlapping_transactions(first_offset, end_offset)
                )
                is_read = segment.segment_id == read.segment_id
                return [each for each in more if is_read or each.last_offset > read.last_offset], is_complete
            finally:
                await self.indexes.release_indexes(indexes)

        found: dict[AbortedRange, None] = {}
        is_complete = False
        for each, start_offset in tuple(followed.epochs_of(its_log)):
            if each >= epoch and not is_complete:
                begin = max(first_offset, start_offset)
                more, is_complete = await aborted_transactions(followed.remote_log, each, begin, collect)
                found |= dict.fromkeys(more)
        if not is_complete:
            local = its_log.aborted_transactions(first_offset, end_offset)
            found |= dict.fromkeys(each for each in local if each.last_offset > read.last_offset)
        ordered = sorted(found, key=lambda one: one.first_offset)
        return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in ordered]

    def _note_failed(self, key: ReadKey, error: ErrorCode) -> None:
        self._failed[key] = (self._environment.monotonic_ms(), error)
        while len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]

    def _keep(self, key: ReadKey, read: CachedRead) -> None:
        self._kept[key] = read
        self._kept_size += len(read.data)
        while self._kept_size > self._kept_size_max and len(self._kept) > 1:
            self._kept_size -= len(self._kept.popitem(last=False)[1].data)


def _end_of(kept: CachedRead, size: int) -> tuple[int, int]:
    """The end of the whole batches in the first `size` bytes of a read: the next offset, and the position in the .log
    object.
    """
    if size >= len(kept.data):
        return kept.next_offset, kept.end_position
    start_position, place, next_offset = kept.end_position - len(kept.data), 0, 0
    while place + HEADER_SIZE <= size:
        header = parse_header(kept.data, place)
        if place + header.size > size:
            break
        place, next_offset = place + header.size, header.next_offset
    return next_offset, start_position + place


def _size_below(data: memoryview, end_offset: int) -> int:
    """The size (bytes) of the batches at the beginning of `data` that end at or before `end_offset` (exclusive)."""
    return next((place for place, header in iterate_batches(data) if header.next_offset > end_offset), len(data))


def empty_batch_to(segment: RemoteSegment, epoch: int, offset: int) -> bytes:
    """Make a batch without records that covers the offsets from `offset` to the end of a segment, from which cleaning
    has removed all records. It lets a consumer continue at the next segment, like the empty batches that cleaning
    leaves in a local log.
    """
    return assemble(
        (b"",),
        offset,
        epoch,
        0,
        segment.last_offset - offset,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        0,
    )


def _located(kept: CachedRead, size_max: int, at_least_one: bool, end_offset: int) -> LocatedBatches:
    """The part of a read with which a fetch is answered: the batches below `end_offset` (exclusive), up to which the
    fetch's isolation level allows to read.

    The high watermark of a new leader may still be below the end of the copied segments.
    """
    size = min(len(kept.data), size_max)
    if at_least_one and size < len(kept.data):
        size = max(size, parse_header(kept.data, 0).size)
    if kept.next_offset > end_offset:
        size = min(size, _size_below(kept.data, end_offset))
    return LocatedBatches(memory_slice(kept.data[:size]), kept.aborted) if size else NOTHING_FOUND


class ReaderPlace(NamedTuple):
    """A partition and an offset at which a fetch begins or has ended."""

    topic_id: bytes
    partition: int
    offset: int


class FetchStreak(NamedTuple):
    """A series of consecutive fetches of a sequential reader."""

    streak: int
    """The number of consecutive fetches: each of them began where the one before it had ended."""
    segment_id: bytes
    """The id of the segment that the last fetch read."""
    position: int
    """The position in that segment's .log object at which the last fetch ended."""


class SequentialReaders:
    """Remembers the offsets at which fetches have ended, to detect sequential readers.

    Clients are not distinguished: any fetch that begins at a remembered offset continues the fetches that ended there.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[ReaderPlace, FetchStreak] = OrderedDict()

    def record_fetch(self, at: ReaderPlace, next_offset: int, segment_id: bytes, end_position: int) -> int:
        """Note that a fetch that began at `at` was answered with the records before `next_offset`, which end at
        `end_position` of a segment's .log object.

        Returns the number of consecutive fetches, including this one.
        """
        before = self._places.get(at)
        streak = before.streak + 1 if before is not None else 1
        place = at._replace(offset=next_offset)
        known = self._places.pop(place, None)
        self._places[place] = FetchStreak(max(streak, known.streak if known else 0), segment_id, end_position)
        while len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        return streak

    def streak_at(self, place: ReaderPlace) -> FetchStreak | None:
        """The consecutive fetches that ended at `place`; None if no remembered fetch ended there."""
        return self._places.get(place)


class RemoteOffsets:
    """Finds offsets by timestamp in remote storage. Its methods are called on the event loop."""

    def __init__(self, opened: OpenStorage, reader: RemoteLogMetadataReader, indexes: RemoteIndexCache) -> None:
        self._opened = opened
        self._reader = reader
        self._indexes = indexes

    async def find(self, partition: Partition, timestamp: int) -> TimestampedOffset | ErrorCode | None:
        """Find the first record at or after a timestamp (ms) in the part of the log that is only in remote storage;
        None if there is none, or the error code for a client if it cannot be looked up.
        """
        try:
            return await self._find(partition, timestamp)
        except RecordSizeExceeded:
            return ErrorCode.INVALID_RECORD
        except (RemoteStorageError, OSError) as error:
            log.error(
                "%s-%d: a time cannot be looked up in remote storage: %s", partition.topic, partition.index, error
            )
            return error_code_of_storage_error(error)

    async def _find(self, partition: Partition, timestamp: int) -> TimestampedOffset | None:
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or not self._opened.is_checked:
            raise StorageUnavailable("the remote log metadata is not read yet")
        its_log, seen = partition.log, set[bytes]()
        for epoch, epoch_start in tuple(followed.epochs_of(its_log)):
            offset = max(its_log.log_start_offset, epoch_start)
            while (segment := followed.remote_log.first_from_time(epoch, timestamp, offset)) is not None:
                if segment.start_offset >= its_log.local_start_offset:
                    break
                offset = segment.last_offset + 1
                if segment.segment_id in seen or segment.last_offset < its_log.log_start_offset:
                    continue
                seen.add(segment.segment_id)
                entries, is_compacted = its_log.epochs.entries, its_log.config.is_compacted
                if is_in_history(segment, its_log.end_offset, entries, is_compacted=is_compacted):
                    found = await self._find_in(followed, segment, timestamp, its_log)
                    if found is not None:
                        return found
        return None

    async def _find_in(
        self, followed: FollowedRemoteLog, segment: RemoteSegment, timestamp: int, its_log: Log
    ) -> TimestampedOffset | None:
        storage, cluster_id = self._opened.storage, self._opened.cluster_id
        indexes = await self._indexes.open_indexes(storage, cluster_id, followed.key, segment, followed.remote_log)
        try:
            start_offset, record_size_max = its_log.log_start_offset, its_log.config.expanded_record_bytes_max
            return await find_timestamp(
                storage, followed.key, segment, indexes, timestamp, start_offset, record_size_max
            )
        finally:
            await self._indexes.release_indexes(indexes)
