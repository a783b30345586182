"""The tiered partitions of this broker, each with its remote log according to the metadata read so far."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.broker.config.internal_topics import NEVER_TIERED
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.leader_epochs import EpochStart, LeaderEpochs
from moldau.storage.log.log import Log
from moldau.storage.tiered.metadata.leader_history import with_remote_epochs
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import PARTITION_REMOVAL_STATES, RemotePartition


def is_tiered(partition: Partition) -> bool:
    """Whether the topic of the partition is tiered, so that segments may be in remote storage."""
    return partition.log.config.is_tiered and partition.topic not in NEVER_TIERED


def remote_partition(partition: Partition) -> RemotePartition:
    return RemotePartition(partition.topic, partition.topic_id, partition.index)


class FollowedRemoteLog:
    """The remote log of a partition that this broker follows, because it has a replica of it."""

    __slots__ = (
        "being_removed",
        "delete_lag_bytes",
        "delete_lag_segments",
        "is_complete",
        "is_led_here",
        "key",
        "metadata_index",
        "next_offset",
        "remote_log",
        "retention_ms",
        "under_way",
    )

    def __init__(self, key: RemotePartition, metadata_index: int) -> None:
        self.key = key
        self.metadata_index = metadata_index
        """The partition of the metadata topic that has this partition's records."""
        self.remote_log = RemoteLog()
        self.under_way: set[bytes] = set()
        """The ids of the segments that this broker is copying. Their copies are unfinished, but not leftovers."""
        self.next_offset = 0
        """The offset in the metadata partition before which all records were replayed."""
        self.is_led_here = False
        """Whether this broker led the partition at the last check. The last leader deletes the remote segments."""
        self.is_complete = False
        """Whether all records were replayed that were committed when this broker began to follow the partition. Before
        that, a lookup may miss segments.
        """

        self.being_removed: set[bytes] = set()
        """The ids of the segments that this broker is deleting."""
        self.delete_lag_segments = 0
        """The number of segments that retention deletes and the leader has not deleted yet."""
        self.delete_lag_bytes = 0
        self.retention_ms = 0.0
        """The duration (ms) of the last search for segments to delete."""

    @property
    def is_being_removed(self) -> bool:
        """Whether all remote segments are being deleted, because the topic was deleted or is not tiered any more."""
        return self.remote_log.delete_state in PARTITION_REMOVAL_STATES

    def epochs_of(self, its_log: Log) -> Sequence[EpochStart]:
        """The leader epochs with which the remote segments of a log are looked up."""
        entries = its_log.epochs.entries
        return with_remote_epochs(entries, self.remote_log.epoch_starts()) if its_log.config.is_compacted else entries

    def end_offset(self, epochs: LeaderEpochs, log_end_offset: int) -> int:
        """The end (exclusive) of the offsets in remote storage that belong to a log with these leader epochs. It is 0
        if there are none, or if all remote segments are being removed.
        """
        if self.is_being_removed:
            return 0
        entries = epochs.entries
        for slot in range(len(entries) - 1, -1, -1):
            highest = self.remote_log.highest_offset(entries[slot].epoch)
            if highest is not None:
                epoch_end = entries[slot + 1].start_offset if slot + 1 < len(entries) else log_end_offset
                return min(highest + 1, epoch_end)
        return 0
