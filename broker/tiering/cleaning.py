"""Cleans the remote segments of compacted topics when the log cleaner visits a partition that this broker leads.

    plan (`storage/tiered/cleaning_plan.py`)
      ──▶ a process builds the map of the keys, and cleans group after group (`storage/compaction/remote_cleaning.py`)
            it needs a remote segment  ──▶ downloaded into a directory of the pass, checksum compared
            it has cleaned a group     ──▶ COPY_SEGMENT_STARTED ──▶ objects ──▶ COPY_SEGMENT_FINISHED replaces the group

A pass that ends early leaves files in its directory, which the next pass and the next start remove. It may also leave
an unfinished copy, which the leader removes (`copying.py`). Each step checks again whether this broker leads in the
same leader epoch.

DIVERGES: Apache Kafka does not compact remote segments.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Final, NamedTuple

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.log_rewriting import IoThrottle
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.tiering.copying import PartitionBackoffs
from moldau.broker.tiering.remote_log_metadata import (
    MetadataNotWritten,
    RemoteLogMetadataReader,
)
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.broker.tiering.rewriting import RemoteWorkplace, ReplacementWriter
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.compaction.offset_map import SALT_SIZE
from moldau.storage.compaction.remote_cleaning import (
    DownloadNeeded,
    GroupCleaned,
    RemoteCleaningDone,
    RemoteCleaningRequest,
    RemoteGroupRequest,
    SourceRange,
    clean_remote_segments,
)
from moldau.storage.compaction.request import BytesProcessed, CleanerLimits, CleaningRequest, LogChanged
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.storage.log.log import Log
from moldau.storage.log.log_state import LogState
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.cleaning_plan import CleaningPlan, PlannedPart, plan_cleaning
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.port import RemoteStorageError

log = logging.getLogger("moldau.cleaner")

PLAN_AGAIN_MS: Final = 60_000
"""The time (ms) after which an unchanged partition is planned again, because max.compaction.lag.ms may have passed."""


class CleanState(NamedTuple):
    """The state that a remote log had when there was nothing to clean in it. The next plan is made when one of the two
    offsets has changed, or `again_ms` (monotonic clock) has passed.
    """

    first_dirty_offset: int | None
    metadata_offset: int
    again_ms: int


class RemoteCleaner:
    """Cleans the remote segments of one partition at a time. `LogCleaner` calls its methods on the event loop."""

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        replicas: Replicas,
        reader: RemoteLogMetadataReader,
        workplace: RemoteWorkplace,
        replacements: ReplacementWriter,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._replicas = replicas
        self._reader = reader
        self._workplace = workplace
        self._replacements = replacements
        self._backoff = PartitionBackoffs(settings, environment)
        self._not_planned: dict[Partition, CleanState] = {}
        self.passes = 0
        """The number of cleaning passes over remote segments that ended without an error, since the start."""
        self.segments_replaced = 0
        self.failures = 0

    def tombstones_end_offset(self, partition: Partition) -> int:
        """The offset before which the cleaner may remove tombstones and transaction markers from a log; `INT64_MAX` if
        the partition is not tiered.

        A tombstone at or past this offset stays, because a remote segment, or a segment that is copied later, may have
        an older value of its key. The offset never decreases, whichever broker leads, copies or cleans. A broker that
        has not read the newest metadata returns a lower offset, so that less is removed.
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
        """Forget the state of partitions that this broker does not serve any more."""
        self._backoff.forget_unserved(self._replicas.__contains__)
        self._not_planned = {each: known for each, known in self._not_planned.items() if each in self._replicas}

    def is_due(self, partition: Partition) -> bool:
        """Whether remote segments of the partition should be cleaned now."""
        return not self._backoff.is_waiting(partition) and self._plan(partition) is not None

    def _plan(self, partition: Partition) -> tuple[FollowedRemoteLog, CleaningPlan] | None:
        config, now_ms = partition.log.config, self._environment.monotonic_ms()
        if not partition.is_leader or not is_tiered(partition) or not config.is_compacted:
            return None
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or config.remote_log_copy_disable:
            return None
        if not self._workplace.is_open or followed.is_being_removed:
            return None
        known = self._not_planned.get(partition)
        seen = (partition.log.first_dirty_offset, followed.next_offset)
        if known is not None and known[:2] == seen and now_ms < known.again_ms:
            return None
        bytes_max = self._settings.config.integer("moldau.tiered.compaction.bytes.per.pass")
        plan = plan_cleaning(partition.log, followed.remote_log, bytes_max, self._environment.wall_ms())
        if plan is None:
            self._not_planned[partition] = CleanState(*seen, now_ms + PLAN_AGAIN_MS)
            return None
        return followed, plan

    async def clean(self, partition: Partition, limits: CleanerLimits) -> bool:
        """Clean the remote segments of a partition once. Returns whether that ended without an error. An error is
        logged, and the partition is cleaned again only after a backoff.
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
            self._backoff.note_failure(partition)
            log.error("remote segments of %s-%d were not cleaned: %s", partition.topic, partition.index, error)
            return False
        self._backoff.note_success(partition)
        self.passes += 1
        return True

    async def _run(
        self, partition: Partition, followed: FollowedRemoteLog, plan: CleaningPlan, limits: CleanerLimits
    ) -> None:
        environment, workplace = self._environment, self._workplace
        check = partial(workplace.check, partition, partition.leader_epoch)
        async with workplace.directory("cleaning", partition) as directory:
            aborted = await self._aborted(partition.log, followed, plan)
            check()
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
            throttle = IoThrottle(self._settings, environment)
            with contextlib.closing(environment.in_process(partial(clean_remote_segments, request=request))) as work:
                while (event := await work.next_event()) is not None:
                    check()
                    if isinstance(event, BytesProcessed):
                        await throttle.pace(event)
                    elif isinstance(event, DownloadNeeded):
                        await workplace.download(followed, downloads[event.source.path], event.source.path)
                    elif isinstance(event, GroupCleaned):
                        segments = plan.groups[event.number].segments
                        self.segments_replaced += await self._replacements.write(followed, segments, event, check)
                    else:
                        self._tell(partition, plan, event)

    async def _aborted(
        self, its_log: Log, followed: FollowedRemoteLog, plan: CleaningPlan
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that may have records or a marker in the segments that are read in a pass."""
        first_offset = min([plan.map_start_offset, *(each.start_offset for each in plan.groups)])
        end_offset = max([plan.map_end_offset, *(each.last_offset + 1 for each in plan.groups)])
        found = dict.fromkeys(its_log.aborted_transactions(first_offset, end_offset))
        for segment in followed.remote_log.read_segments():
            if segment.last_offset >= first_offset:
                found |= dict.fromkeys(await self._workplace.aborted(followed, segment))
        return tuple(found)

    def _tell(self, partition: Partition, plan: CleaningPlan, done: RemoteCleaningDone) -> None:
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
    """The cleaning rules for the remote segments of a log. The results are written into `directory`."""
    config = log.config
    return CleaningRequest(
        directory=directory,
        truncation_count=log.truncation_count,
        segments=(),
        first_dirty_offset=plan.map_start_offset,
        # No batch is kept for its offset alone, because the metadata has the end offset of a segment.
        first_uncleanable_offset=-1,
        aborted_with_later_marker=(),
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
    """The request to the cleaner's process, and the remote segments to download for it, each by the path of the file in
    which the process expects it.
    """
    downloads: dict[str, RemoteSegment] = {}

    def ranges(parts: tuple[PlannedPart, ...]) -> tuple[SourceRange, ...]:
        return tuple(_source_range(each, log.directory, rules.directory, downloads) for each in parts)

    request = RemoteCleaningRequest(
        base_request=rules,
        map_sources=ranges(plan.map_parts),
        map_end_offset=plan.map_end_offset,
        groups=tuple(
            RemoteGroupRequest(
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
