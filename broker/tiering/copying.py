"""Copies the rolled segments of the partitions that this broker leads to remote storage.

    remains of unfinished copies and deletions ──▶ removed first
    what retention of both tiers gives up       ──▶ log start offset, then removed (`expiration.py`)
    segment below the last stable offset, past what is copied:
        COPY_SEGMENT_STARTED ──▶ objects, the manifest last ──▶ still the leader? ──▶ COPY_SEGMENT_FINISHED

One partition has at most one copy under way, so an unfinished copy in its remote log is a remain: of a former leader,
or of this broker before an error. A leader that is deposed in the midst of a copy leaves it to the next one, which
deletes it. Each step looks again whether this broker leads in the same leader epoch.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.metadata.dynamic_config import DynamicConfig
from broker.replicas.replicas import Replicas
from broker.runtime.environment import Environment
from broker.runtime.tasks import Spawn
from broker.tiering.backoff import PartitionBackoff
from broker.tiering.expiration import expired
from broker.tiering.metadata_writer import MetadataNotWritten, MetadataWriter
from broker.tiering.opening import OpenStorage
from broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from broker.tiering.segment_contents import CannotCopy, Copyable, contents_of, copy_limit, copyable, described
from replication.partition import Partition
from storage.tiered.errors import RemoteStorageError
from storage.tiered.metadata.lineage import read_lineage
from storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment, SegmentUpdate
from storage.tiered.metadata.segment_state import SegmentState
from storage.tiered.pins import pinned_segments
from storage.tiered.segment_copy import NO_LINEAGE, put_segment, remove_data, remove_manifest

log = logging.getLogger("moldau.tiering")

ID_SIZE: Final = 16
DELETE_STARTED: Final = SegmentState.DELETE_SEGMENT_STARTED


class NoLongerLeader(Exception):
    """Another broker leads, or the topic is not tiered any more: what was begun is left as it is."""


class SegmentCopier:
    """Belongs to the event loop. At most `remote.log.manager.copier.thread.pool.size` partitions at once."""

    def __init__(
        self,
        node_id: int,
        settings: DynamicConfig,
        environment: Environment,
        spawn: Spawn,
        replicas: Replicas,
        opened: OpenStorage,
        writer: MetadataWriter,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._environment = environment
        self._spawn = spawn
        self._replicas = replicas
        self._opened = opened
        self._writer = writer
        self._under_way: set[Partition] = set()
        self._backoff = PartitionBackoff(settings, environment)
        self.segments_copied = 0
        self.bytes_copied = 0
        self.segments_deleted = 0
        self.failures = 0
        """Rounds that ended with an error, since the start."""

    def begin_round(self, partition: Partition, followed: FollowedRemoteLog) -> None:
        """Copy what is to be copied of a partition, unless that is under way or has just failed."""
        config = self._settings.config
        if partition in self._under_way or not followed.is_complete or not self._opened.is_checked:
            return
        if len(self._under_way) >= config.integer("remote.log.manager.copier.thread.pool.size"):
            return
        if self._backoff.is_waiting(partition):
            return
        self._under_way.add(partition)
        self._spawn(self._run(partition, followed), f"copy-{partition.topic}-{partition.index}")

    def is_copying(self, key: RemotePartition) -> bool:
        """Whether a round of the partition is under way."""
        return any(remote_partition(each) == key for each in self._under_way)

    def forget_gone(self) -> None:
        """Forget the failures of partitions that this broker does not serve any more."""
        self._backoff.keep(self._replicas.__contains__)

    async def _run(self, partition: Partition, followed: FollowedRemoteLog) -> None:
        try:
            await self._copy_all(partition, followed)
        except NoLongerLeader:
            self._backoff.succeeded(partition)
        except (RemoteStorageError, MetadataNotWritten, CannotCopy, OSError) as error:
            self.failures += 1
            self._backoff.failed(partition)
            log.error("segments of %s-%d could not be copied: %s", partition.topic, partition.index, error)
        else:
            self._backoff.succeeded(partition)
        finally:
            self._under_way.discard(partition)

    async def _copy_all(self, partition: Partition, followed: FollowedRemoteLog) -> None:
        epoch = partition.leader_epoch
        await self._remove_remains(partition, followed, epoch)
        await self._expire(partition, followed, epoch)
        while not partition.log.config.remote_log_copy_disable:
            self._check(partition, epoch)
            its_log = partition.log
            copied_end = followed.end_offset(its_log.epochs, its_log.end_offset)
            from_offset = max(copied_end, its_log.log_start_offset)
            found = copyable(its_log, from_offset, copy_limit(its_log, partition.last_stable_offset))
            if not found:
                return
            await self._copy(partition, followed, epoch, found[0])

    def _check(self, partition: Partition, epoch: int) -> None:
        leads = partition in self._replicas and partition.is_leader and partition.leader_epoch == epoch
        if not leads or not is_tiered(partition) or partition.log.failure is not None:
            raise NoLongerLeader

    async def _copy(self, partition: Partition, followed: FollowedRemoteLog, epoch: int, found: Copyable) -> None:
        environment, its_log = self._environment, partition.log
        now_ms = environment.wall_ms()
        segment = described(its_log, found, environment.entropy(ID_SIZE), self._node_id, now_ms)
        contents = await contents_of(its_log, found, environment)
        if found.segment not in its_log.segments:
            return  # the log cleaner has replaced it, and the contents may be of both
        self._check(partition, epoch)
        await self._writer.write(followed, segment)
        self._check(partition, epoch)
        await put_segment(
            self._opened.storage,
            self._opened.cluster_id,
            followed.key,
            segment,
            contents,
            lineage=read_lineage(segment.custom_metadata) or NO_LINEAGE,
        )
        self._check(partition, epoch)
        await self._write_state(followed, segment, SegmentState.COPY_SEGMENT_FINISHED)
        self.segments_copied += 1
        self.bytes_copied += segment.size
        its_log.tiered_end_offset = followed.end_offset(its_log.epochs, its_log.end_offset)

    async def _remove_remains(self, partition: Partition, followed: FollowedRemoteLog, epoch: int) -> None:
        remote_log = followed.remote_log
        for segment in (*remote_log.unfinished(), *remote_log.in_deletion()):
            self._check(partition, epoch)
            if segment.segment_id not in followed.under_way:
                await self.remove(followed, segment, honours_pins=segment.state is DELETE_STARTED)

    async def _expire(self, partition: Partition, followed: FollowedRemoteLog, epoch: int) -> None:
        """Delete what the retention of both tiers gives up. The log start offset moves first."""
        retention_ms = self._settings.config.integer("moldau.tiered.superseded.retention.ms")
        found = expired(partition.log, followed.remote_log, self._environment.wall_ms(), retention_ms)
        start_offset = min(found.log_start_offset, partition.high_watermark)
        if start_offset > partition.log.log_start_offset:
            partition.delete_before(start_offset)
        for segment in found.segments:
            self._check(partition, epoch)
            self.segments_deleted += await self.remove(followed, segment, honours_pins=True)

    async def remove(self, followed: FollowedRemoteLog, segment: RemoteSegment, *, honours_pins: bool) -> bool:
        """Delete a segment that may not be read any more, or never was. Returns whether it is gone: a pin may hold it,
        and a later call goes on. Raises `RemoteStorageError` and `MetadataNotWritten`; a later call goes on."""
        storage, place = self._opened.storage, (followed.key, segment.start_offset, segment.segment_id)
        if honours_pins and await self._is_pinned(followed, segment):
            return False
        if segment.state is not DELETE_STARTED:
            await self._write_state(followed, segment, DELETE_STARTED)
        await remove_manifest(storage, *place)
        # Again: a reader that wrote its pin since then may have listed the manifest (`storage/tiered/pins.py`).
        if honours_pins and await self._is_pinned(followed, segment):
            return False
        await remove_data(storage, *place)
        await self._write_state(followed, segment, SegmentState.DELETE_SEGMENT_FINISHED)
        return True

    async def _is_pinned(self, followed: FollowedRemoteLog, segment: RemoteSegment) -> bool:
        opened, now_ms = self._opened, self._environment.wall_ms()
        held, problems = await pinned_segments(opened.storage, opened.cluster_id, followed.key, now_ms)
        for problem in problems:
            log.error("a pin of %s-%d is ignored: %s", followed.key.topic, followed.key.partition, problem)
        return segment.segment_id in held

    async def _write_state(self, followed: FollowedRemoteLog, segment: RemoteSegment, state: SegmentState) -> None:
        now_ms = self._environment.wall_ms()
        await self._writer.write(followed, SegmentUpdate(segment.segment_id, self._node_id, now_ms, state))
