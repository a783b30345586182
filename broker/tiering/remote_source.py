"""Reads of consumers below the local log start: the second `Source` of fetches.

    read(offset) ──▶ kept from an earlier read?  ──▶ Located, or the error, which is told once
                 └▶ else Remote: a task reads    ──▶ the fetch waits, at most remote.fetch.max.wait.ms, and asks again

At most `remote.log.reader.threads` reads are under way, and `remote.log.reader.max.pending.tasks` wait. Fetches of the
same records share one read. A read that outlives its fetch is kept for the next one, so that a slow storage still makes
progress. What is kept takes at most `KEPT_SIZE_MAX` bytes; the reads used longest ago go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.metadata.dynamic_config import DynamicConfig
from broker.runtime.environment import Environment
from broker.runtime.tasks import Spawn
from broker.tiering.metadata_reader import MetadataReader
from broker.tiering.opening import OpenStorage
from broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from protocol.errors import ErrorCode
from protocol.messages.fetch import AbortedTransaction
from protocol.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    parse_header,
)
from protocol.record_builder import assemble
from replication.partition import Partition
from replication.source import TXN_COMMITTED, Cold, FetchIsolation, Located, Remote
from storage.files.memory_file import memory_slice
from storage.log.log import Log
from storage.segment.transaction_index import AbortedTransaction as AbortedRange
from storage.tiered.errors import ObjectNotFound, RemoteStorageError
from storage.tiered.index_cache import RemoteIndexCache
from storage.tiered.metadata.remote_segment import RemoteSegment
from storage.tiered.remote_lookup import RemoteRead, aborted_transactions, read_from

log = logging.getLogger("moldau.tiering")

KEPT_SIZE_MAX: Final = 64 << 20
READ_SIZE_MAX: Final = 8 << 20
"""Bytes of one read, whatever the fetch allows."""
LOOK_AGAIN_COUNT: Final = 3
"""How often an offset is looked up again whose object is gone: its segment was replaced or deleted meanwhile."""


class ReadKey(NamedTuple):
    """The same key always means the same records."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    """Of the record at the offset."""
    offset: int
    segment_id: bytes
    """The segment that is read at the offset: a cleaned one takes the place of others."""


class KeptRead(NamedTuple):
    """Whole batches from an offset on."""

    data: memoryview
    aborted: list[AbortedTransaction]


class RemoteSource:
    """Belongs to the event loop; every read of the storage is in a task of its own."""

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        spawn: Spawn,
        opened: OpenStorage,
        reader: MetadataReader,
    ) -> None:
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
        )
        self._under_way: dict[ReadKey, Remote] = {}
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = 0
        self._kept: OrderedDict[ReadKey, KeptRead] = OrderedDict()
        self._kept_size = 0
        self._failed: dict[ReadKey, ErrorCode] = {}
        self.reads = 0
        self.bytes_read = 0
        self.failures = 0

    def read(
        self,
        partition: Partition,
        offset: int,
        size_max: int,
        isolation: FetchIsolation,
        at_least_one: bool,
        waits: bool,
    ) -> Located | Cold | Remote | ErrorCode:
        """`Source.read`. KAFKA_STORAGE_ERROR, which clients try again, while the storage or the metadata cannot be
        read, and where too many reads wait. OFFSET_OUT_OF_RANGE where no remote segment has the offset."""
        epoch = partition.log.epochs.epoch_of(offset)
        if epoch is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or not self._opened.is_checked:
            return ErrorCode.KAFKA_STORAGE_ERROR
        segment = followed.remote_log.find(epoch, offset)
        if segment is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        key = ReadKey(partition.topic_id, partition.index, epoch, offset, segment.segment_id)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return _located(kept, size_max, isolation, at_least_one)
        failed = self._failed.pop(key, None)
        if failed is not None:
            return failed
        under_way = self._under_way.get(key)
        if under_way is None:
            if len(self._waiting) >= self._pending_max:
                return ErrorCode.KAFKA_STORAGE_ERROR
            under_way = self._under_way[key] = Remote()
            size = min(max(size_max, HEADER_SIZE), READ_SIZE_MAX)
            self._begin(lambda: self._spawn(self._run(key, under_way, partition.log, followed, size), "remote-read"))
        return under_way

    def _begin(self, start: Callable[[], object]) -> None:
        if self._running < self._settings.config.integer("remote.log.reader.threads"):
            self._running += 1
            start()
        else:
            self._waiting.append(start)

    async def _run(
        self, key: ReadKey, remote: Remote, its_log: Log, followed: FollowedRemoteLog, size_max: int
    ) -> None:
        try:
            self._keep(key, await self._read(key, its_log, followed, size_max))
        except (RemoteStorageError, OSError) as error:
            self.failures += 1
            self._failed[key] = ErrorCode.KAFKA_STORAGE_ERROR
            topic, partition = followed.key.topic, followed.key.partition
            log.error("offset %d of %s-%d cannot be read remotely: %s", key.offset, topic, partition, error)
        finally:
            del self._under_way[key]
            self._running -= 1
            if self._waiting:
                self._running += 1
                self._waiting.popleft()()
        remote.done()

    async def _read(self, key: ReadKey, its_log: Log, followed: FollowedRemoteLog, size_max: int) -> KeptRead:
        offset, epoch = key.offset, key.leader_epoch
        for attempt in range(LOOK_AGAIN_COUNT):
            segment = followed.remote_log.find(epoch, offset)
            if segment is None:
                raise ObjectNotFound(f"no remote segment has offset {offset} any more")
            try:
                found = await self._read_segment(followed, segment, offset, size_max)
                if found is None:
                    return KeptRead(memoryview(nothing_left(segment, epoch, offset)), [])
                aborted = await self._aborted(its_log, followed, epoch, offset, found.next_offset, segment)
            except ObjectNotFound:
                if attempt + 1 == LOOK_AGAIN_COUNT:
                    raise
            else:
                self.reads += 1
                self.bytes_read += len(found.data)
                return KeptRead(found.data, aborted)
        raise AssertionError("the last attempt raises or returns")

    async def _read_segment(
        self, followed: FollowedRemoteLog, segment: RemoteSegment, offset: int, size_max: int
    ) -> RemoteRead | None:
        opened = self._opened
        indexes = await self.indexes.open(opened.storage, opened.cluster_id, followed.key, segment)
        try:
            find = indexes.offset_index.position_at_or_before
            position = await self._environment.offload(lambda: find(offset))
        finally:
            await self.indexes.give_back(indexes)
        return await read_from(opened.storage, followed.key, segment, position, offset, size_max)

    async def _aborted(
        self,
        its_log: Log,
        followed: FollowedRemoteLog,
        epoch: int,
        first_offset: int,
        end_offset: int,
        read: RemoteSegment,
    ) -> list[AbortedTransaction]:
        """The aborted transactions that reach into [first, end): their markers may be in later segments, of later
        epochs, or in the local log. A transaction that ended inside the segment that is read counts only where the
        index of that segment has it: of a compacted topic the other tier may still have a marker that was removed here,
        and without a marker a client would skip what the producer wrote later."""
        opened = self._opened

        async def collect(segment: RemoteSegment) -> tuple[list[AbortedRange], bool]:
            indexes = await self.indexes.open(opened.storage, opened.cluster_id, followed.key, segment)
            try:
                more, is_complete = indexes.transaction_index.collect(first_offset, end_offset)
                is_read = segment.segment_id == read.segment_id
                return [each for each in more if is_read or each.last_offset > read.last_offset], is_complete
            finally:
                await self.indexes.give_back(indexes)

        found: dict[AbortedRange, None] = {}
        is_complete = False
        for each, start_offset in tuple(its_log.epochs.entries):
            if each >= epoch and not is_complete:
                begin = max(first_offset, start_offset)
                more, is_complete = await aborted_transactions(followed.remote_log, each, begin, end_offset, collect)
                found |= dict.fromkeys(more)
        if not is_complete:
            local = its_log.aborted_transactions(first_offset, end_offset)
            found |= dict.fromkeys(each for each in local if each.last_offset > read.last_offset)
        ordered = sorted(found, key=lambda one: one.first_offset)
        return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in ordered]

    def _keep(self, key: ReadKey, read: KeptRead) -> None:
        self._kept[key] = read
        self._kept_size += len(read.data)
        while self._kept_size > KEPT_SIZE_MAX and len(self._kept) > 1:
            self._kept_size -= len(self._kept.popitem(last=False)[1].data)


def nothing_left(segment: RemoteSegment, epoch: int, offset: int) -> bytes:
    """A batch without records, from an offset to the end of a segment, where cleaning has removed all. It takes
    a consumer to the next segment, as the empty batches do that cleaning leaves in a local log."""
    return assemble(
        b"",
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


def _located(kept: KeptRead, size_max: int, isolation: FetchIsolation, at_least_one: bool) -> Located:
    size = min(len(kept.data), size_max)
    if at_least_one and size < len(kept.data):
        size = max(size, parse_header(kept.data, 0).size)
    aborted = kept.aborted if isolation is TXN_COMMITTED else None
    return Located(memory_slice(kept.data[:size]) if size else None, aborted)
