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
from functools import partial
from typing import Final, NamedTuple

from moldau.broker.metadata.dynamic_config import DynamicConfig
from moldau.broker.replicas.log_cleaner import Throttle
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.tiering.backoff import PartitionBackoff
from moldau.broker.tiering.cleaning_request import remote_request, remote_rules
from moldau.broker.tiering.metadata_reader import MetadataReader
from moldau.broker.tiering.metadata_writer import MetadataNotWritten, MetadataWriter
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.broker.tiering.replacement import ReplacementWriter
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.compaction.events import LogChanged, Moved
from moldau.storage.compaction.offset_map import SALT_SIZE
from moldau.storage.compaction.remote_cleaning import GroupCleaned, PassDone, Wanted, clean_remote
from moldau.storage.compaction.request import CleanerLimits
from moldau.storage.log.log import Log
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.cleaning_plan import CleaningPlan, plan_cleaning
from moldau.storage.tiered.errors import RemoteStorageError
from moldau.storage.tiered.index_cache import CACHE_DIRECTORY, RemoteIndexCache
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.segment_download import download_segment

log = logging.getLogger("moldau.cleaner")

PLAN_AGAIN_MS: Final = 60_000
"""The time (ms) after which an unchanged partition is examined again, because max.compaction.lag.ms may have passed."""


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
        reader: MetadataReader,
        writer: MetadataWriter,
        indexes: RemoteIndexCache,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._replicas = replicas
        self._opened = opened
        self._reader = reader
        self._indexes = indexes
        self._replacements = ReplacementWriter(settings.config.node_id, environment, opened, writer)
        self._backoff = PartitionBackoff(settings, environment)
        self._not_planned: dict[Partition, NotPlanned] = {}
        self.passes = 0
        """The number of passes that ended without an error, since the start."""
        self.segments_replaced = 0
        self.failures = 0

    def tombstones_end_offset(self, partition: Partition) -> int:
        """The offset from which on no tombstone and no marker of a log may be removed (`INT64_MAX` where the partition
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
        self._backoff.keep(self._replicas.__contains__)
        self._not_planned = {each: known for each, known in self._not_planned.items() if each in self._replicas}

    def wants(self, partition: Partition) -> bool:
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
                    if isinstance(event, Moved):
                        rate = config.real("log.cleaner.io.max.bytes.per.second")
                        await asyncio.sleep(throttle.delay_s(event.bytes_read + event.bytes_written, rate))
                    elif isinstance(event, Wanted):
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
