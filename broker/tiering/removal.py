"""Deletes all remote segments of a partition whose topic was deleted, or is not tiered any more.

    DELETE_PARTITION_MARKED ──▶ DELETE_PARTITION_STARTED ──▶ each segment ──▶ DELETE_PARTITION_FINISHED

The broker that led the partition last deletes the segments, and reads the metadata of the partition until all are
deleted. Removals of partitions take turns. At most remote.log.manager.expiration.thread.pool.size segments are deleted
at once.

If that broker ends before the removal is finished, the metadata has DELETE_PARTITION_MARKED without
DELETE_PARTITION_FINISHED. The leader of the metadata partition then continues the removal: at once if that broker is
not active, otherwise after `ADOPT_MS`, because that broker may still be working. A broker that finds a mark of its
previous process continues by itself. A broker that ends before it has written the mark leaves objects that belong to no
topic. A sweep of the storage finds them.

A removal that is marked continues even if the topic is tiered again in the meantime: local retention and readers do not
count on its segments any more. Copies begin anew after DELETE_PARTITION_FINISHED.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.tiering.copying import SegmentCopier
from moldau.broker.tiering.remote_log_metadata import (
    MetadataNotWritten,
    RemoteLogMetadataReader,
    RemoteLogMetadataWriter,
)
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.storage.tiered.metadata.remote_segment import PartitionDelete, PartitionDeleteState, RemotePartition
from moldau.storage.tiered.port import RemoteStorageError

log = logging.getLogger("moldau.tiering")

RETRY_S: Final = 5.0
ADOPT_MS: Final = 600_000
SEGMENTS_AT_ONCE: Final = 100
"""The number of segments that are taken from the metadata at a time."""


class RemoteRemoval:
    """Deletes all remote segments of partitions. Its methods are called on the event loop."""

    def __init__(
        self,
        node_id: int,
        environment: Environment,
        spawn: Spawn,
        reader: RemoteLogMetadataReader,
        writer: RemoteLogMetadataWriter,
        copier: SegmentCopier,
        is_tiered_here: Callable[[RemotePartition], bool],
        count_max: int,
    ) -> None:
        """`is_tiered_here`: whether this broker has a replica of a partition whose topic is tiered. `count_max`: the
        maximum number of segments that are deleted in parallel.
        """
        self._is_tiered_here = is_tiered_here
        self._node_id = node_id
        self._environment = environment
        self._spawn = spawn
        self._reader = reader
        self._writer = writer
        self._copier = copier
        self._places = asyncio.Semaphore(count_max)
        self._under_way: set[RemotePartition] = set()

    def begin(self, followed: FollowedRemoteLog) -> None:
        """Delete all segments of a remote log. Afterwards its metadata is not followed any more, unless the topic is
        tiered again.
        """
        if followed.key not in self._under_way:
            self._under_way.add(followed.key)
            self._spawn(self._run(followed), f"remove-{followed.key.topic}-{followed.key.partition}")

    def is_under_way(self, key: RemotePartition) -> bool:
        return key in self._under_way

    async def _run(self, followed: FollowedRemoteLog) -> None:
        topic, index = followed.key.topic, followed.key.partition
        is_done = False
        while not is_done:
            try:
                await self._remove(followed)
            except (RemoteStorageError, MetadataNotWritten) as error:
                log.error("the remote segments of %s-%d are not deleted yet: %s", topic, index, error)
                await asyncio.sleep(RETRY_S)
            else:
                is_done = True
        log.info("the remote segments of %s-%d are deleted", topic, index)
        self._under_way.discard(followed.key)
        if not self._is_tiered_here(followed.key):
            self._reader.unfollow(followed.key)

    async def _remove(self, followed: FollowedRemoteLog) -> None:
        while not followed.is_complete or followed.under_way or self._copier.is_copying(followed.key):
            await asyncio.sleep(RETRY_S / 10)  # Objects that are put after the deletion would be orphans.
        remote_log = followed.remote_log
        if not followed.is_being_removed:
            if not len(remote_log) or self._is_tiered_here(followed.key):
                return
            await self._write(followed, PartitionDeleteState.DELETE_PARTITION_MARKED)
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_STARTED)
        while followed.is_being_removed and (segments := list(islice(remote_log.segments(), SEGMENTS_AT_ONCE))):
            for segment in segments:
                async with self._places:
                    is_gone = await self._copier.remove(followed, segment, honours_pins=False)
                if not is_gone:
                    await asyncio.sleep(RETRY_S / 10)  # Retention is deleting the segment.
        if followed.is_being_removed:
            await self._write(followed, PartitionDeleteState.DELETE_PARTITION_FINISHED)

    async def _write(self, followed: FollowedRemoteLog, state: PartitionDeleteState) -> None:
        await self._writer.write(followed, PartitionDelete(self._node_id, self._environment.wall_ms(), state))
