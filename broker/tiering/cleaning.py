"""Cleans remote segments of compacted topics, in the log cleaner's pass over a partition that this broker leads.

    plan (`storage/tiered/cleaning_plan.py`)
      ──▶ a process builds the map of the keys, and cleans group after group (`storage/compaction/remote_cleaning.py`)
            it needs a remote segment  ──▶ downloaded into a directory of the pass, checksum compared
            it has cleaned a group     ──▶ COPY_SEGMENT_STARTED ──▶ objects ──▶ COPY_SEGMENT_FINISHED replaces the group

A pass that ends early leaves files in its directory, which the next pass and the next start remove, and a copy that is
not finished, which the leader removes (`copying.py`). Each step looks again whether this broker leads in the same
leader epoch.

DIVERGES: Apache Kafka does not compact remote segments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.log_rewriting import Throttle
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.tiering.copying import PartitionBackoff
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_log_metadata import (
    MetadataNotWritten,
    RemoteLogMetadataReader,
    RemoteLogMetadataWriter,
)
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.compaction.offset_map import SALT_SIZE
from moldau.storage.compaction.remote_cleaning import (
    DownloadNeeded,
    GroupCleaned,
    GroupRequest,
    PassDone,
    RemoteCleaningRequest,
    SourceRange,
    clean_remote,
)
from moldau.storage.compaction.request import BytesMoved, CleanerLimits, CleaningRequest, LogChanged
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.storage.files.port import File
from moldau.storage.log.log import Log
from moldau.storage.log.log_state import LogState
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.cleaning_plan import CleaningPlan, PlannedPart, plan_cleaning
from moldau.storage.tiered.index_cache import CACHE_DIRECTORY, RemoteIndexCache
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.metadata.cleaning_groups import OFFSET_SPAN_MAX, cleaned_lineage, merged_epochs
from moldau.storage.tiered.metadata.lineage import Lineage, read_lineage
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate
from moldau.storage.tiered.port import Content, CorruptObject, RemoteStorageError
from moldau.storage.tiered.segment_copy import NO_LINEAGE, FileContent, put_segment
from moldau.storage.tiered.segment_download import download_segment, get_object

log = logging.getLogger("moldau.cleaner")

PLAN_AGAIN_MS: Final = 60_000
"""The time (ms) after which an unchanged partition is examined again, because max.compaction.lag.ms may have passed."""
ID_SIZE: Final = 16


class NotPlanned(NamedTuple):
    """The result of an examination that found nothing to clean."""

    first_dirty_offset: int | None
    metadata_offset: int
    again_ms: int


class RemoteCleaner:
    """Cleans the remote segments of one partition at a time. `LogCleaner` calls it on the event loop."""

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        replicas: Replicas,
        opened: OpenStorage,
        reader: RemoteLogMetadataReader,
        replacements: ReplacementWriter,
        indexes: RemoteIndexCache,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._replicas = replicas
        self._opened = opened
        self._reader = reader
        self._indexes = indexes
        self._replacements = replacements
        self._backoff = PartitionBackoff(settings, environment)
        self._not_planned: dict[Partition, NotPlanned] = {}
        self.passes = 0
        """The number of passes that ended without an error, since the start."""
        self.segments_replaced = 0
        self.failures = 0

    def tombstones_end_offset(self, partition: Partition) -> int:
        """The offset from which on no tombstone and no marker of a log may be removed (`INT64_MAX` if the partition
        is not tiered): a remote segment may have an older value of the key, or a later copy may add one. The result
        never decreases, whichever broker leads, copies or cleans: a broker that reads the metadata late only removes
        less.
        """
        if not is_tiered(partition):
            return INT64_MAX
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete:
            return 0
        its_log = partition.log
        copied_end_offset = followed.end_offset(its_log.epochs, its_log.end_offset)
        return min(copied_end_offset, followed.remote_log.cleaned_end_offset())

    def forget_gone(self) -> None:
        """Forget partitions that this broker does not serve any more."""
        self._backoff.retain(self._replicas.__contains__)
        self._not_planned = {each: known for each, known in self._not_planned.items() if each in self._replicas}

    def is_due(self, partition: Partition) -> bool:
        """Whether the partition needs a pass now."""
        return not self._backoff.is_waiting(partition) and self._plan(partition) is not None

    def _plan(self, partition: Partition) -> tuple[FollowedRemoteLog, CleaningPlan] | None:
        config, now_ms = partition.log.config, self._environment.monotonic_ms()
        if not partition.is_leader or not is_tiered(partition) or not config.is_compacted:
            return None
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or config.remote_log_copy_disable:
            return None
        if not self._opened.is_checked or followed.is_being_removed:
            return None
        known = self._not_planned.get(partition)
        seen = (partition.log.first_dirty_offset, followed.next_offset)
        if known is not None and known[:2] == seen and now_ms < known.again_ms:
            return None
        bytes_max = self._settings.config.integer("moldau.tiered.compaction.bytes.per.pass")
        plan = plan_cleaning(partition.log, followed.remote_log, bytes_max, self._environment.wall_ms())
        if plan is None:
            self._not_planned[partition] = NotPlanned(*seen, now_ms + PLAN_AGAIN_MS)
            return None
        return followed, plan

    async def clean(self, partition: Partition, limits: CleanerLimits) -> bool:
        """One pass over a partition. Returns whether it ended without an error; an error is logged, and the partition
        waits.
        """
        planned = self._plan(partition)
        if planned is None:
            return False
        try:
            await self._run(partition, *planned, limits)
        except LogChanged:
            return False
        except (RemoteStorageError, MetadataNotWritten, MalformedMessage, OSError) as error:
            self.failures += 1
            self._backoff.failed(partition)
            log.error("remote segments of %s-%d were not cleaned: %s", partition.topic, partition.index, error)
            return False
        self._backoff.succeeded(partition)
        self.passes += 1
        return True

    def _check(self, partition: Partition, epoch: int) -> None:
        """Check that this broker leads and that the log has not failed. Raises `LogChanged` otherwise."""
        leads = partition in self._replicas and partition.is_leader and partition.leader_epoch == epoch
        if not leads or not is_tiered(partition) or partition.log.failure is not None:
            raise LogChanged(partition.log.directory)

    async def _run(
        self, partition: Partition, followed: FollowedRemoteLog, plan: CleaningPlan, limits: CleanerLimits
    ) -> None:
        environment, config, epoch = self._environment, self._settings.config, partition.leader_epoch
        name = f"cleaning-{uuid_text(partition.topic_id)}-{partition.index}"
        directory = f"{config.log_dirs[0]}/{CACHE_DIRECTORY}/{name}"
        await environment.offload(partial(self._empty, directory))
        aborted = await self._aborted(partition.log, followed, plan)
        self._check(partition, epoch)
        rules = remote_rules(
            partition.log,
            plan,
            directory,
            limits,
            self.tombstones_end_offset(partition),
            environment.entropy(SALT_SIZE),
            environment.wall_ms(),
        )
        request, downloads = remote_request(partition.log, plan, rules, aborted)
        throttle = Throttle(environment.monotonic_ms)
        work = environment.in_process(partial(clean_remote, request=request))
        try:
            with contextlib.closing(work):
                while (event := await work.next_event()) is not None:
                    self._check(partition, epoch)
                    if isinstance(event, BytesMoved):
                        rate = config.real("log.cleaner.io.max.bytes.per.second")
                        await asyncio.sleep(throttle.delay_s(event.bytes_read + event.bytes_written, rate))
                    elif isinstance(event, DownloadNeeded):
                        await self._download(followed, downloads[event.source.path], event.source.path)
                    elif isinstance(event, GroupCleaned):
                        segments = plan.groups[event.number].segments
                        check = partial(self._check, partition, epoch)
                        self.segments_replaced += await self._replacements.write(followed, segments, event, check)
                    else:
                        self._tell(partition, plan, event)
        finally:
            await environment.offload(partial(self._remove, directory))

    async def _aborted(
        self, its_log: Log, followed: FollowedRemoteLog, plan: CleaningPlan
    ) -> tuple[AbortedTransaction, ...]:
        """All aborted transactions that may have data or the marker in the sources of the pass."""
        first_offset = min([plan.map_start_offset, *(each.start_offset for each in plan.groups)])
        end_offset = max([plan.map_end_offset, *(each.last_offset + 1 for each in plan.groups)])
        found = dict.fromkeys(its_log.aborted_transactions(first_offset, end_offset))
        for segment in followed.remote_log.read_segments():
            if segment.has_transaction_index and segment.last_offset >= first_offset:
                opened = self._opened
                indexes = await self._indexes.open(
                    opened.storage, opened.cluster_id, followed.key, segment, followed.remote_log
                )
                try:
                    found |= dict.fromkeys(indexes.transaction_index.entries())
                finally:
                    await self._indexes.give_back(indexes)
        return tuple(found)

    async def _download(self, followed: FollowedRemoteLog, segment: RemoteSegment, path: str) -> None:
        opened, environment = self._opened, self._environment
        await download_segment(
            opened.storage, opened.cluster_id, followed.key, segment, environment.fs, path, environment.offload
        )

    def _empty(self, directory: str) -> None:
        self._remove(directory)
        self._environment.fs.make_directories(directory)

    def _remove(self, directory: str) -> None:
        if self._environment.fs.exists(directory):
            self._environment.fs.remove_tree(directory)

    def _tell(self, partition: Partition, plan: CleaningPlan, done: PassDone) -> None:
        told = done.statistics
        log.info(
            "cleaned remote segments of %s-%d in %d groups: %d of %d bytes and %d of %d records stay",
            partition.topic,
            partition.index,
            len(plan.groups),
            told.bytes_written,
            told.bytes_read,
            told.messages_written,
            told.messages_read,
        )


def remote_rules(
    log: LogState,
    plan: CleaningPlan,
    directory: str,
    limits: CleanerLimits,
    tombstones_end_offset: int,
    salt: bytes,
    now_ms: int,
) -> CleaningRequest:
    """The cleaning rules for remote segments. `directory`: where the results are written."""
    config = log.config
    return CleaningRequest(
        directory=directory,
        truncation_count=log.truncation_count,
        segments=(),
        first_dirty_offset=plan.map_start_offset,
        # No batch is kept for its offset alone, because the metadata has the end offset of a segment.
        first_uncleanable_offset=-1,
        aborted_behind=(),
        last_records={},  # No batch is kept for its producer, because a follower begins with the producer snapshot.
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        expanded_bytes_max=config.expanded_bytes_max,
        expanded_record_bytes_max=config.expanded_record_bytes_max,
        compression_type=config.compression_type,
        compression_level=config.compression_level,
        limits=limits,
        tombstones_end_offset=tombstones_end_offset,
        salt=salt,
        now_ms=now_ms,
    )


def remote_request(
    log: LogState, plan: CleaningPlan, rules: CleaningRequest, aborted: tuple[AbortedTransaction, ...]
) -> tuple[RemoteCleaningRequest, dict[str, RemoteSegment]]:
    """The request, and the remote segment for each path that the cleaner's process may ask for."""
    downloads: dict[str, RemoteSegment] = {}

    def ranges(parts: tuple[PlannedPart, ...]) -> tuple[SourceRange, ...]:
        return tuple(_source_range(each, log.directory, rules.directory, downloads) for each in parts)

    request = RemoteCleaningRequest(
        rules=rules,
        map_sources=ranges(plan.map_parts),
        map_end_offset=plan.map_end_offset,
        groups=tuple(
            GroupRequest(
                each.start_offset, each.last_offset + 1, ranges(each.parts), each.cleaned_end_offset, each.is_copied
            )
            for each in plan.groups
        ),
        aborted=aborted,
    )
    return request, downloads


def _source_range(
    part: PlannedPart, log_directory: str, directory: str, downloads: dict[str, RemoteSegment]
) -> SourceRange:
    source = part.source
    if isinstance(source, RemoteSegment):
        path = f"{directory}/{offset_name(source.start_offset, '')}_{uuid_text(source.segment_id)}{LOG_SUFFIX}"
        downloads[path] = source
        return SourceRange(path, source.size, part.first_offset, part.end_offset, is_downloaded=True)
    path = f"{log_directory}/{offset_name(source.base_offset, LOG_SUFFIX)}"
    return SourceRange(path, source.size, part.first_offset, part.end_offset, is_downloaded=False)


class ReplacementWriter:
    """Writes a cleaned or erased segment to remote storage, in the place of the segments that it was made of. Its
    methods are called on the event loop.

        COPY_SEGMENT_STARTED with the lineage ──▶ objects, the manifest last ──▶ COPY_SEGMENT_FINISHED

    The replay of the last record replaces the ancestors, unless one of them was replaced or deleted in the meantime
    (decision 14). A segment of which cleaning removes nothing gets one record with its new lineage, and no new objects.
    """

    def __init__(
        self, node_id: int, environment: Environment, opened: OpenStorage, writer: RemoteLogMetadataWriter
    ) -> None:
        self._node_id = node_id
        self._environment = environment
        self._opened = opened
        self._writer = writer

    async def write(
        self,
        followed: FollowedRemoteLog,
        ancestors: Sequence[RemoteSegment],
        cleaned: GroupCleaned,
        check: Callable[[], None],
    ) -> int:
        """Replace the ancestors. Returns the number of replaced segments.

        `check` raises if this broker does not lead any more. Raises `RemoteStorageError`, `MetadataNotWritten` and
        OSError; then an unfinished copy may be left.
        """
        if cleaned.is_unchanged and len(ancestors) == 1:
            known = read_lineage(ancestors[0].custom_metadata) or NO_LINEAGE
            await self.keep(
                followed, ancestors[0].segment_id, known._replace(cleaned_end_offset=cleaned.cleaned_end_offset)
            )
            return 0
        lineage = cleaned_lineage(ancestors, cleaned.cleaned_end_offset)
        await self.replace(followed, ancestors, cleaned, self._environment.entropy(ID_SIZE), lineage, check)
        return len(ancestors)

    async def keep(self, followed: FollowedRemoteLog, segment_id: bytes, lineage: Lineage) -> None:
        """Give a segment that stays as it is a new lineage. Raises `MetadataNotWritten`."""
        await self._write_finished(followed, segment_id, lineage.encode())

    async def replace(
        self,
        followed: FollowedRemoteLog,
        ancestors: Sequence[RemoteSegment],
        cleaned: GroupCleaned,
        segment_id: bytes,
        lineage: Lineage,
        check: Callable[[], None],
    ) -> None:
        """Put a rewritten segment in the place of its ancestors. Raises as `write`."""
        has_aborted = bool(await self._size(cleaned, ObjectKind.TRANSACTION_INDEX))
        segment = replace(
            replacement(ancestors, cleaned, segment_id, lineage),
            broker_id=self._node_id,
            event_timestamp_ms=self._environment.wall_ms(),
            has_transaction_index=has_aborted,
        )
        if segment.size > OFFSET_SPAN_MAX:
            raise CorruptObject(f"the cleaned segment at offset {segment.start_offset} has {segment.size} bytes")
        file = self._environment.fs.open(cleaned.paths[ObjectKind.LOG.value], read_only=True)
        followed.under_way.add(segment.segment_id)
        try:
            contents = await self._contents(followed, ancestors, cleaned, has_aborted, file)
            check()
            await self._writer.write(followed, segment)
            check()
            await put_segment(
                self._opened.storage,
                self._opened.cluster_id,
                followed.key,
                segment,
                contents,
                lineage=lineage,
                ancestors=tuple(each.segment_id for each in ancestors),
            )
            check()
            await self._write_finished(followed, segment.segment_id, None)
        finally:
            followed.under_way.discard(segment.segment_id)
            file.close()

    async def _write_finished(self, followed: FollowedRemoteLog, segment_id: bytes, lineage: bytes | None) -> None:
        now_ms, state = self._environment.wall_ms(), SegmentState.COPY_SEGMENT_FINISHED
        await self._writer.write(followed, SegmentUpdate(segment_id, self._node_id, now_ms, state, lineage))

    async def _size(self, cleaned: GroupCleaned, kind: ObjectKind) -> int:
        path = cleaned.paths.get(kind.value)
        return await self._environment.offload(partial(self._environment.fs.file_size, path)) if path else 0

    async def _contents(
        self,
        followed: FollowedRemoteLog,
        ancestors: Sequence[RemoteSegment],
        cleaned: GroupCleaned,
        has_aborted: bool,
        file: File,
    ) -> dict[ObjectKind, Content]:
        """The contents of the objects. Producer snapshot and leader epochs are those of the last ancestor."""
        environment, opened = self._environment, self._opened

        async def read(size: int, position: int) -> bytes:
            return await environment.offload(partial(file.pread, size, position))

        contents: dict[ObjectKind, Content] = {
            ObjectKind.LOG: FileContent(read, cleaned.size) if cleaned.size else b"",
        }
        kinds = [ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX]
        for kind in (*kinds, ObjectKind.TRANSACTION_INDEX) if has_aborted else kinds:
            contents[kind] = bytes(await environment.offload(partial(environment.fs.read, cleaned.paths[kind.value])))
        last = max(ancestors, key=lambda each: each.last_offset)
        for kind in (ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.LEADER_EPOCHS):
            contents[kind] = await get_object(opened.storage, opened.cluster_id, followed.key, last, kind)
        return contents


def replacement(
    ancestors: Sequence[RemoteSegment], cleaned: GroupCleaned, segment_id: bytes, lineage: Lineage
) -> RemoteSegment:
    """The segment that replaces its ancestors: with exactly their range of offsets and leader epochs."""
    latest = max(each.max_timestamp_ms for each in ancestors)
    return RemoteSegment(
        segment_id,
        min(each.start_offset for each in ancestors),
        max(each.last_offset for each in ancestors),
        broker_id=-1,
        max_timestamp_ms=cleaned.max_timestamp_ms if cleaned.max_timestamp_ms >= 0 else latest,
        event_timestamp_ms=-1,
        epochs=merged_epochs(ancestors),
        size=cleaned.size,
        custom_metadata=lineage.encode(),
    )
