"""Deletes all remote segments of a partition whose topic was deleted, or is not tiered any more.

    DELETE_PARTITION_MARKED ──▶ DELETE_PARTITION_STARTED ──▶ each segment ──▶ DELETE_PARTITION_FINISHED

The broker that led the partition last deletes them, and reads the metadata of the partition until all are deleted.
Partitions take turns, remote.log.manager.expiration.thread.pool.size segments at once.

If that broker ends before it is done, the metadata has DELETE_PARTITION_MARKED without DELETE_PARTITION_FINISHED. The
leader of the metadata partition then continues the removal: at once where the mark is its own, or its broker is not
active; otherwise after `ADOPT_MS`, because that broker may still be working. A broker that ends before it has written
the mark leaves objects that belong to no topic: a sweep of the storage finds them.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Final

from broker.runtime.environment import Environment
from broker.runtime.tasks import Spawn
from broker.tiering.copying import SegmentCopier
from broker.tiering.metadata_reader import MetadataReader
from broker.tiering.metadata_writer import MetadataNotWritten, MetadataWriter
from broker.tiering.remote_partitions import FollowedRemoteLog
from storage.tiered.errors import RemoteStorageError
from storage.tiered.metadata.remote_segment import PartitionDelete, RemotePartition
from storage.tiered.metadata.segment_state import PartitionDeleteState

log = logging.getLogger("moldau.tiering")

RETRY_S: Final = 5.0
ADOPT_MS: Final = 600_000
SEGMENTS_AT_ONCE: Final = 100
"""The segments that are taken from the metadata at a time."""


class RemoteRemoval:
    """Deletes all remote segments of partitions. Its methods are called on the event loop."""

    def __init__(
        self,
        node_id: int,
        environment: Environment,
        spawn: Spawn,
        reader: MetadataReader,
        writer: MetadataWriter,
        copier: SegmentCopier,
        count_max: int,
    ) -> None:
        """`count_max`: the number of segments that are deleted in parallel."""
        self._node_id = node_id
        self._environment = environment
        self._spawn = spawn
        self._reader = reader
        self._writer = writer
        self._copier = copier
        self._places = asyncio.Semaphore(count_max)
        self._under_way: set[RemotePartition] = set()

    def begin(self, followed: FollowedRemoteLog) -> None:
        """Delete all segments of a remote log; afterwards its metadata is not followed any more."""
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
        self._reader.unfollow(followed.key)

    async def _remove(self, followed: FollowedRemoteLog) -> None:
        while not followed.is_complete or followed.under_way or self._copier.is_copying(followed.key):
            await asyncio.sleep(RETRY_S / 10)  # Objects that are put after the deletion would be orphans.
        if not len(followed.remote_log) and followed.remote_log.delete_state is None:
            return
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_MARKED)
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_STARTED)
        while segments := list(islice(followed.remote_log.segments(), SEGMENTS_AT_ONCE)):
            for segment in segments:
                async with self._places:
                    is_gone = await self._copier.remove(followed, segment, honours_pins=False)
                if not is_gone:
                    await asyncio.sleep(RETRY_S / 10)  # Retention is deleting the segment.
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_FINISHED)

    async def _write(self, followed: FollowedRemoteLog, state: PartitionDeleteState) -> None:
        await self._writer.write(followed, PartitionDelete(self._node_id, self._environment.wall_ms(), state))
