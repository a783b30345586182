"""Deletes all remote segments of a partition whose topic was deleted, or is tiered no more.

    DELETE_PARTITION_MARKED ──▶ DELETE_PARTITION_STARTED ──▶ each segment ──▶ DELETE_PARTITION_FINISHED

The broker that led the partition last does it, and reads the metadata of the partition until it is done. What is left
where that broker ends meanwhile, is in no topic any more: a sweep of the storage finds it.
"""

from __future__ import annotations

import asyncio
import logging
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


class RemoteRemoval:
    """Belongs to the event loop."""

    def __init__(
        self,
        node_id: int,
        environment: Environment,
        spawn: Spawn,
        reader: MetadataReader,
        writer: MetadataWriter,
        copier: SegmentCopier,
    ) -> None:
        self._node_id = node_id
        self._environment = environment
        self._spawn = spawn
        self._reader = reader
        self._writer = writer
        self._copier = copier
        self._under_way: set[RemotePartition] = set()

    def begin(self, followed: FollowedRemoteLog) -> None:
        """Delete all of a remote log, until it is done; then its metadata is followed no more."""
        if followed.key not in self._under_way:
            self._under_way.add(followed.key)
            self._spawn(self._run(followed), f"remove-{followed.key.topic}-{followed.key.partition}")

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
            await asyncio.sleep(RETRY_S / 10)  # objects that are put after the deletion would be orphans
        if not len(followed.remote_log):
            return
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_MARKED)
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_STARTED)
        for segment in list(followed.remote_log.segments()):
            await self._copier.remove(followed, segment, honours_pins=False)
        await self._write(followed, PartitionDeleteState.DELETE_PARTITION_FINISHED)

    async def _write(self, followed: FollowedRemoteLog, state: PartitionDeleteState) -> None:
        await self._writer.write(followed, PartitionDelete(self._node_id, self._environment.wall_ms(), state))
