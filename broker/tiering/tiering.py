"""Tiered storage of a broker: makes its parts, and starts their work periodically."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.broker.config.tiering import metadata_topic
from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.tiering.cleaning import RemoteCleaner
from moldau.broker.tiering.copying import SegmentCopier
from moldau.broker.tiering.erasing import RemoteEraser
from moldau.broker.tiering.follower_state import FollowerState
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_log_metadata import (
    RemoteLogMetadataPorts,
    RemoteLogMetadataReader,
    RemoteLogMetadataWriter,
)
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.broker.tiering.remote_source import RemoteOffsets, RemoteSource
from moldau.broker.tiering.removal import ADOPT_MS, RemoteRemoval
from moldau.broker.tiering.rewriting import RemoteWorkplace, ReplacementWriter
from moldau.broker.tiering.traffic import COPY_QUOTA, FETCH_QUOTA, RemoteTraffic, TransferQuota
from moldau.storage.log.log import Log
from moldau.storage.tiered.metadata.records import metadata_partition
from moldau.storage.tiered.metadata.remote_segment import RemotePartition

log = logging.getLogger("moldau.tiering")

LOOK_MS: Final = 1_000
"""The interval (ms) at which new, removed and newly tiered partitions are looked for."""
CREATION_RETRY_MS: Final = 5_000
PARTITIONS_AT_ONCE: Final = 200
"""The number of partitions that are examined before other callbacks of the event loop run."""


class TieringPorts(NamedTuple):
    """The parts of the broker that tiered storage uses."""

    metadata: RemoteLogMetadataPorts
    settings: DynamicConfig
    flusher: Flusher
    topics: TopicCreation


class Tiering:
    """Tiered storage of a broker with remote.log.storage.system.enable. Its methods are called on the event loop."""

    def __init__(self, ports: TieringPorts) -> None:
        """Make the parts, and open the remote storage. Raises `RemoteStorageRefused`."""
        metadata, config = ports.metadata, ports.settings.config
        self._ports = ports
        self._environment = metadata.environment
        self._replicas = metadata.replicas
        self.opened = OpenStorage(config, metadata.environment, metadata.cluster.id)
        self.reader = RemoteLogMetadataReader(metadata)
        self.writer = RemoteLogMetadataWriter(metadata, self.reader, ports.flusher)
        monotonic_ms = metadata.environment.monotonic_ms
        self.copy_quota = TransferQuota(COPY_QUOTA, ports.settings, monotonic_ms)
        self.fetch_quota = TransferQuota(FETCH_QUOTA, ports.settings, monotonic_ms)
        self.traffic = RemoteTraffic()
        self.copier = SegmentCopier(
            metadata.node_id,
            ports.settings,
            metadata.environment,
            metadata.spawn,
            metadata.replicas,
            self.opened,
            self.writer,
            self.copy_quota,
            self.traffic,
        )
        self.removal = RemoteRemoval(
            metadata.node_id,
            metadata.environment,
            metadata.spawn,
            self.reader,
            self.writer,
            self.copier,
            self._is_tiered_here,
            config.integer("remote.log.manager.expiration.thread.pool.size"),
        )
        self.source = RemoteSource(
            ports.settings,
            metadata.environment,
            metadata.spawn,
            self.opened,
            self.reader,
            self.fetch_quota,
            self.traffic,
        )
        workplace = RemoteWorkplace(
            ports.settings, metadata.environment, metadata.replicas, self.opened, self.source.indexes
        )
        replacements = ReplacementWriter(metadata.node_id, metadata.environment, self.opened, self.writer)
        self.cleaner = RemoteCleaner(
            ports.settings, metadata.environment, metadata.replicas, self.reader, workplace, replacements
        )
        self.eraser = RemoteEraser(
            ports.settings, metadata.environment, metadata.replicas, self.reader, workplace, self.copier, replacements
        )
        self.follower_state = FollowerState(metadata, ports.settings, self.opened, self.reader, self.traffic)
        self.offsets = RemoteOffsets(self.opened, self.reader, self.source.indexes)
        self._copy_ms = config.integer("remote.log.manager.task.interval.ms")
        self._next_creation_ms = 0
        self._next_copy_ms = 0

    async def check_storage(self) -> None:
        """Check the remote storage, before the broker serves clients. Raises `RemoteStorageRefused`."""
        await self.opened.check(self._ports.metadata.spawn)
        await self._environment.offload(self.source.indexes.clear)

    def begin(self) -> None:
        """Begin to follow and to copy partitions, because the broker is registered and has the metadata of the
        cluster.
        """
        self._ports.metadata.spawn(self._run(), "tiering")

    def followed_logs(self) -> Iterator[tuple[FollowedRemoteLog, Log | None]]:
        """Each remote log that is followed, with the log of the local replica, or None if this broker has no replica
        any more.
        """
        for followed in self.reader:
            partition = self._replicas.get(followed.key.topic, followed.key.partition)
            is_same = partition is not None and partition.topic_id == followed.key.topic_id
            yield followed, partition.log if partition is not None and is_same else None

    async def close(self) -> None:
        """Close the connections to the storage and the index files, after the tasks of the broker have ended."""
        self.source.indexes.close()
        await self.opened.storage.close()

    async def _run(self) -> None:
        while True:
            self._create_metadata_topic()
            await self._look()
            await asyncio.sleep(LOOK_MS / 1000)

    def _create_metadata_topic(self) -> None:
        now_ms = self._environment.monotonic_ms()
        if self.reader.partition_count is None and now_ms >= self._next_creation_ms:
            self._next_creation_ms = now_ms + CREATION_RETRY_MS
            self._ports.topics.create_internal(metadata_topic(self._ports.settings.config))

    async def _look(self) -> None:
        """Follow exactly the tiered partitions of this broker, and schedule the copies that are due."""
        now_ms = self._environment.monotonic_ms()
        copies = now_ms >= self._next_copy_ms
        if copies:
            self._next_copy_ms = now_ms + self._copy_ms
            self.copier.forget_gone()
            self.cleaner.forget_gone()
            self.traffic.retain(lambda topic: self._ports.metadata.cluster.image.topics.by_name(topic) is not None)
        seen: set[RemotePartition] = set()
        for number, partition in enumerate(tuple(self._replicas)):
            if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if not is_tiered(partition) or partition not in self._replicas:
                partition.log.tiered_end_offset = 0  # Tiered again, the topic is copied anew.
                continue
            key = remote_partition(partition)
            seen.add(key)
            followed = self.reader.follow(key)
            if followed is None:
                continue
            its_log = partition.log
            its_log.tiered_end_offset = followed.end_offset(its_log.epochs, its_log.end_offset)
            followed.is_led_here = partition.is_leader
            if partition.is_leader and followed.is_being_removed:
                # Tiering was switched off and on again: the part that was only remote is given up.
                partition.delete_records_before(min(its_log.local_start_offset, partition.high_watermark))
            if copies and partition.is_leader:
                self.copier.begin_round(partition, followed)
        for followed in self.reader:
            if followed.key not in seen:
                self._leave(followed)
        self.reader.look_for_leaders()
        self._adopt()

    def _is_tiered_here(self, key: RemotePartition) -> bool:
        """Whether this broker has a replica of the partition, and its topic is tiered."""
        partition = self._replicas.get(key.topic, key.partition)
        return partition is not None and partition.topic_id == key.topic_id and is_tiered(partition)

    def _adopt(self) -> None:
        """Continue removals that another broker, or the previous process, has begun and will not finish.

        A removal is continued even if the topic is tiered again: the topic is copied anew once the removal is finished.
        """
        metadata, count = self._ports.metadata, self.reader.partition_count
        image, now_ms = metadata.cluster.image, self._environment.wall_ms()
        for key, mark in tuple(self.reader.marked.items()):
            is_own = mark.broker_id == metadata.node_id
            is_at_work = not is_own and image.cluster.is_active(mark.broker_id)
            if self.removal.is_under_way(key) or (is_at_work and now_ms - mark.event_timestamp_ms < ADOPT_MS):
                continue
            if is_own or (count and self.reader.leader_of(metadata_partition(key, count)) == metadata.node_id):
                followed = self.reader.follow(key)
                if followed is not None:
                    self.removal.begin(followed)

    def _leave(self, followed: FollowedRemoteLog) -> None:
        """Stop following a partition of which this broker has no tiered replica any more.

        If the topic was deleted, or is not tiered any more, the last leader deletes the remote segments.
        """
        if self.removal.is_under_way(followed.key):
            return
        topic = self._ports.metadata.cluster.image.topics.by_name(followed.key.topic)
        is_deleted = topic is None or topic.id != followed.key.topic_id
        partition = self._replicas.get(followed.key.topic, followed.key.partition)
        is_disabled = partition is not None and not is_tiered(partition) and not is_deleted
        leads_now = is_disabled and partition is not None and partition.is_leader
        if leads_now or (followed.is_led_here and (is_deleted or is_disabled)):
            self.removal.begin(followed)
        else:
            self.reader.unfollow(followed.key)
