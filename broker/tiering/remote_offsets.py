"""Finds offsets by time in remote storage (ListOffsets)."""

from __future__ import annotations

from broker.tiering.metadata_reader import MetadataReader
from broker.tiering.opening import OpenStorage
from broker.tiering.remote_partitions import remote_partition
from replication.partition import Partition
from storage.log.timestamp_lookup import TimestampedOffset
from storage.tiered.errors import StorageUnavailable
from storage.tiered.index_cache import RemoteIndexCache
from storage.tiered.metadata.leader_history import is_in_history
from storage.tiered.remote_lookup import find_timestamp


class RemoteOffsets:
    """Belongs to the event loop."""

    def __init__(self, opened: OpenStorage, reader: MetadataReader, indexes: RemoteIndexCache) -> None:
        self._opened = opened
        self._reader = reader
        self._indexes = indexes

    async def find(self, partition: Partition, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after a timestamp (ms) that is only in remote storage; None where there is none.

        Raises `RemoteStorageError` and OSError.
        """
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or not self._opened.is_checked:
            raise StorageUnavailable("the remote log metadata is not read yet")
        its_log = partition.log
        start_offset, local_start_offset = its_log.log_start_offset, its_log.local_start_offset
        for segment in followed.remote_log.read_segments():
            if segment.max_timestamp_ms < timestamp or segment.last_offset < start_offset:
                continue
            if segment.start_offset >= local_start_offset:
                break
            if not is_in_history(segment, its_log.end_offset, its_log.epochs.entries):
                continue
            storage, cluster_id = self._opened.storage, self._opened.cluster_id
            indexes = await self._indexes.open(storage, cluster_id, followed.key, segment)
            try:
                found = await find_timestamp(storage, followed.key, segment, indexes, timestamp, start_offset)
            finally:
                await self._indexes.give_back(indexes)
            if found is not None:
                return found
        return None
