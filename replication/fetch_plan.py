"""Plans a fetch: finds for each partition the place of its records in a file, or the error. It reads no records.

    wanted partitions ──▶ refused? ──▶ a nearer replica? ──▶ diverging? ──▶ throttled? ──▶ Source ──▶ PlannedRead

The size limits of the request, and of the memory for the response, are given to the partitions in their order. The
first partition with records gets at least one batch, whatever the limits, so that a batch larger than the limits does
not stop a consumer (KIP-74).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, PartitionData, ReplicaState
from moldau.replication.follower_fetch import NO_EPOCH, LocalReplicas, PartitionKey, divergence_of, refusal_of_replica
from moldau.replication.partition import Partition
from moldau.replication.replication_quota import ReplicationQuota
from moldau.replication.source import (
    HIGH_WATERMARK,
    LOG_END,
    TXN_COMMITTED,
    FetchIsolation,
    LocatedBatches,
    PageCacheMiss,
    PendingRemoteRead,
    RecordSource,
)
from moldau.storage.checkpoints.leader_epochs import EpochEnd
from moldau.storage.files.file_slice import FileSlice

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_ERROR: Final = ErrorCode.NONE
MOVED_TO_TIERED_STORAGE: Final = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
"""A module-level name for `OFFSET_MOVED_TO_TIERED_STORAGE`, because the lookup of an enum member costs as much as a
call.
"""
FOLLOWER_READS_VERSION: Final = 11
"""The first version of Fetch in which consumers name their rack and may read from followers (KIP-392)."""
NO_PREFERRED_REPLICA: Final = -1


class ReplicaSelector(Protocol):
    """Chooses the replica from which a consumer should read (KIP-392)."""

    def select(self, partition: Partition, fetch_offset: int, rack: str) -> int:
        """Return the id of the follower from which a consumer in this rack should read, or `NO_PREFERRED_REPLICA` for
        the leader.
        """


class FetchLimits(Protocol):
    """The limits on the records that one fetch response carries."""

    @property
    def size_max(self) -> int:
        """The maximum size of the records in the response, in bytes."""

    @property
    def memory_size_max(self) -> int:
        """The maximum size of the records that are copied into memory for the response, in bytes."""

    @property
    def may_wait_for_remote(self) -> bool:
        """Whether the fetch may wait for reads of remote storage. Otherwise partitions that need such a read are
        answered without records.
        """

    def can_send_from_file(self, place: FileSlice) -> bool:
        """Whether the connection can send this part of a file without a copy in memory."""


class PlannedRead:
    """The planned answer for one partition of a fetch. It says where the records are; they are not read yet."""

    __slots__ = ("data", "fetch_offset", "key", "partition", "place")

    def __init__(
        self,
        key: PartitionKey,
        data: PartitionData,
        partition: Partition | None,
        place: FileSlice | None = None,
        fetch_offset: int = -1,
    ) -> None:
        self.key = key
        self.data = data
        self.partition = partition
        """The replica that is read; None if this broker does not have the partition."""
        self.place = place
        """The part of a file with the records; None if the answer has none."""
        self.fetch_offset = fetch_offset

    @property
    def size(self) -> int:
        return self.place.size if self.place is not None else 0

    @property
    def is_urgent(self) -> bool:
        """Whether the response must be sent without waiting for more records: the partition has an error, a diverging
        log or a preferred replica.
        """
        data = self.data
        return data.error_code != NO_ERROR or data.diverging_epoch is not None or data.preferred_read_replica >= 0


class FetchPlanner:
    """Plans the fetches of one broker's clients and followers."""

    def __init__(
        self,
        replicas: LocalReplicas,
        source: RecordSource,
        leader_quota: ReplicationQuota,
        selector: ReplicaSelector | None,
        monotonic_ms: Callable[[], int],
        remote: RecordSource | None = None,
    ) -> None:
        """`leader_quota`: the replication quota of this broker's leaders. `selector`: None lets every consumer read
        from the leader. `remote`: the source of records below the local log start offset of tiered topics.
        """
        self._replicas = replicas
        self._source = source
        self._remote = remote
        self._quota = leader_quota
        self._selector = selector
        self._monotonic_ms = monotonic_ms

    def plan(
        self,
        request: FetchRequest,
        version: int,
        wanted: Iterable[tuple[PartitionKey, FetchPartition]],
        replica: ReplicaState | None,
        agreeing: Mapping[PartitionKey, None],
        room: FetchLimits,
        waits: bool,
    ) -> list[PlannedRead] | PageCacheMiss | PendingRemoteRead:
        """Plan the answer for each wanted partition, or return what the caller has to wait for before it plans again:

            PageCacheMiss        a lookup needs bytes that the page cache lacks; with `waits` it reads them itself
            PendingRemoteRead    remote storage is being read; returned only while `room.may_wait_for_remote` is true

        `replica` is the follower that fetches; None for a consumer. `agreeing` has the partitions in which the
        follower's log was just found to be a prefix of the leader's log. `room` limits the size of the response.

        DIVERGES: Apache Kafka fails a partition on a negative limit; here it counts as 0.
        """
        left, memory = min(request.max_bytes, room.size_max), room.memory_size_max
        isolation = isolation_of(request, replica)
        is_over = replica is not None and not self._quota.is_idle and self._quota.is_exceeded(self._monotonic_ms())
        prefers_near = (
            self._selector is not None and replica is None and request.rack_id and version >= FOLLOWER_READS_VERSION
        )
        found_records = False
        reads = []
        for key, wish in wanted:
            partition = self._replicas.find(key)
            if partition is None:
                data = unknown_partition_answer(key[1], self._replicas.error_of(*key))
                reads.append(PlannedRead(key, data, None))
                continue
            refusal = _refusal(version, partition, wish, replica)
            if refusal is not NO_ERROR:
                reads.append(PlannedRead(key, set_partition_error(_empty(partition, wish), refusal), partition))
                continue
            if prefers_near and partition.is_leader:
                near = self._near_replica(partition, wish, request.rack_id)
                if near != NO_PREFERRED_REPLICA:
                    data = _empty(partition, wish)
                    data.preferred_read_replica = near
                    reads.append(PlannedRead(key, data, partition))
                    continue
            diverging = divergence_of(partition.log, wish) if key not in agreeing else None
            if diverging is not None:
                reads.append(_diverging(key, wish, partition, diverging))
                continue
            if is_over and replica is not None and self._is_held_back(partition, replica):
                reads.append(PlannedRead(key, _empty(partition, wish), partition))
                continue
            read = self._read(key, wish, partition, isolation, left, not found_records, waits)
            if isinstance(read, PendingRemoteRead):
                if room.may_wait_for_remote:
                    return read
                read = PlannedRead(key, _empty(partition, wish), partition)
            if isinstance(read, PlannedRead) and read.place is not None and not room.can_send_from_file(read.place):
                if read.place.size > memory:
                    read = self._read(key, wish, partition, isolation, min(left, memory), not found_records, waits)
                    assert not isinstance(read, PendingRemoteRead), "what was just there is kept"
                if isinstance(read, PlannedRead):
                    memory = max(memory - read.size, 0)
            if isinstance(read, PageCacheMiss):
                return read
            if read.place is not None:
                found_records = True
                left -= read.place.size
            reads.append(read)
        return reads

    def _read(
        self,
        key: PartitionKey,
        wish: FetchPartition,
        partition: Partition,
        isolation: FetchIsolation,
        left: int,
        at_least_one: bool,
        waits: bool,
    ) -> PlannedRead | PageCacheMiss | PendingRemoteRead:
        data = _empty(partition, wish)
        if isolation is TXN_COMMITTED:
            data.aborted_transactions = []
        if not partition.log.log_start_offset <= wish.fetch_offset <= partition.log.end_offset:
            return PlannedRead(key, set_partition_error(data, ErrorCode.OFFSET_OUT_OF_RANGE), partition)
        size_max = min(wish.partition_max_bytes, left)
        if size_max <= 0 and not at_least_one:
            return PlannedRead(key, data, partition)
        found = self._source.find_batches(
            partition, wish.fetch_offset, max(size_max, 0), isolation, at_least_one, waits
        )
        if found is MOVED_TO_TIERED_STORAGE and isolation is not LOG_END and self._remote is not None:
            found = self._remote.find_batches(
                partition, wish.fetch_offset, max(size_max, 0), isolation, at_least_one, waits
            )
        if isinstance(found, LocatedBatches):
            if found.aborted_transactions is not None:
                data.aborted_transactions = found.aborted_transactions
            return PlannedRead(key, data, partition, found.slice, wish.fetch_offset)
        if isinstance(found, PageCacheMiss | PendingRemoteRead):
            return found
        if found is MOVED_TO_TIERED_STORAGE:
            data.error_code, data.aborted_transactions = found, None
            # The follower uses the offsets of this error: it takes the log start offset.
            return PlannedRead(key, data, partition)
        return PlannedRead(key, set_partition_error(data, found), partition)

    def _near_replica(self, partition: Partition, wish: FetchPartition, rack: str) -> int:
        return (
            self._selector.select(partition, wish.fetch_offset, rack)
            if self._selector is not None
            else NO_PREFERRED_REPLICA
        )

    def _is_held_back(self, partition: Partition, replica: ReplicaState) -> bool:
        """Whether a follower must get no records of a partition now: the partition is throttled, and the leaders' quota
        is exceeded. Never true for an in-sync follower.
        """
        return replica.replica_id not in partition.isr and self._quota.is_throttled(partition.topic, partition.index)

    def count_throttled(self, reads: Iterable[PlannedRead]) -> None:
        """Count the bytes of throttled partitions that are about to be sent against the quota. Those sent to in-sync
        followers count, too.
        """
        if self._quota.is_idle:
            return
        now_ms = self._monotonic_ms()
        for read in reads:
            partition = read.partition
            if (
                partition is not None
                and read.place is not None
                and self._quota.is_throttled(partition.topic, partition.index)
            ):
                self._quota.record_bytes(read.place.size, now_ms)


def isolation_of(request: FetchRequest, replica: ReplicaState | None) -> FetchIsolation:
    """The isolation of a fetch, which limits the offsets that the client may read."""
    if replica is not None:
        return LOG_END
    return TXN_COMMITTED if request.isolation_level == READ_COMMITTED else HIGH_WATERMARK


def _refusal(version: int, partition: Partition, wish: FetchPartition, replica: ReplicaState | None) -> ErrorCode:
    """The error for a fetch of this partition by this replica; NONE if the fetch is allowed.

    Followers may read only from the leader. Consumers may read from followers since version 11 of Fetch.
    """
    refusal = partition.check_leader_epoch(max(wish.current_leader_epoch, NO_EPOCH))
    if refusal is not NO_ERROR:
        return refusal
    if replica is not None:
        return refusal_of_replica(partition, replica)
    may_read = partition.is_leader or version >= FOLLOWER_READS_VERSION
    return NO_ERROR if may_read else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _diverging(key: PartitionKey, wish: FetchPartition, partition: Partition, found: EpochEnd) -> PlannedRead:
    """Answer a client whose log diverges from this log in the client's last epoch (KIP-595).

    The answer has the end of that epoch in this log, or OFFSET_OUT_OF_RANGE if this log has no epoch at or below the
    client's.
    """
    data = _empty(partition, wish)
    if found.epoch == NO_EPOCH:
        return PlannedRead(key, set_partition_error(data, ErrorCode.OFFSET_OUT_OF_RANGE), partition)
    data.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)
    return PlannedRead(key, data, partition)


def _empty(partition: Partition, wish: FetchPartition) -> PartitionData:
    return PartitionData(
        partition_index=wish.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def set_partition_error(data: PartitionData, error: ErrorCode) -> PartitionData:
    """Turn the answer for a partition into an error, with -1 for all offsets."""
    data.error_code = error
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    data.aborted_transactions = None
    return data


def unknown_partition_answer(index: int, error: ErrorCode) -> PartitionData:
    """Make the answer, with an error, for a partition that this broker does not have."""
    return PartitionData(partition_index=index, error_code=error, high_watermark=-1, records=b"")
