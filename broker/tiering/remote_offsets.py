"""Finds offsets by time in remote storage (ListOffsets)."""

from __future__ import annotations

from moldau.broker.tiering.metadata_reader import MetadataReader
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log.timestamp_lookup import TimestampedOffset
from moldau.storage.tiered.errors import StorageUnavailable
from moldau.storage.tiered.index_cache import RemoteIndexCache
from moldau.storage.tiered.metadata.leader_history import is_in_history
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.remote_lookup import find_timestamp


class RemoteOffsets:
    """Finds offsets by time in remote storage. Its methods are called on the event loop."""

    def __init__(self, opened: OpenStorage, reader: MetadataReader, indexes: RemoteIndexCache) -> None:
        self._opened = opened
        self._reader = reader
        self._indexes = indexes

    async def find(self, partition: Partition, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after a timestamp (ms) that is only in remote storage; None where there is none.

        Raises `RemoteStorageError`, OSError, and `RecordSizeExceeded`.
        """
        followed = self._reader.get(remote_partition(partition))
        if followed is None or not followed.is_complete or not self._opened.is_checked:
            raise StorageUnavailable("the remote log metadata is not read yet")
        its_log, seen = partition.log, set[bytes]()
        for epoch, epoch_start in tuple(followed.epochs_of(its_log)):
            offset = max(its_log.log_start_offset, epoch_start)
            while (segment := followed.remote_log.first_from_time(epoch, timestamp, offset)) is not None:
                if segment.start_offset >= its_log.local_start_offset:
                    break
                offset = segment.last_offset + 1
                if segment.segment_id in seen or segment.last_offset < its_log.log_start_offset:
                    continue
                seen.add(segment.segment_id)
                entries, is_compacted = its_log.epochs.entries, its_log.config.is_compacted
                if is_in_history(segment, its_log.end_offset, entries, is_compacted=is_compacted):
                    found = await self._find_in(followed, segment, timestamp, its_log)
                    if found is not None:
                        return found
        return None

    async def _find_in(
        self, followed: FollowedRemoteLog, segment: RemoteSegment, timestamp: int, its_log: Log
    ) -> TimestampedOffset | None:
        storage, cluster_id = self._opened.storage, self._opened.cluster_id
        indexes = await self._indexes.open(storage, cluster_id, followed.key, segment, followed.remote_log)
        try:
            start_offset, record_size_max = its_log.log_start_offset, its_log.config.expanded_record_bytes_max
            return await find_timestamp(
                storage, followed.key, segment, indexes, timestamp, start_offset, record_size_max
            )
        finally:
            await self._indexes.give_back(indexes)
