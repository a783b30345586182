"""The state that the leader updates from a follower's fetch, before it reads any records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, ReplicaState
from moldau.replication.partition import Partition
from moldau.replication.updated_partitions import PartitionKey, UpdatedPartitions
from moldau.storage.checkpoints.leader_epochs import EpochEnd
from moldau.storage.log.log import Log

NONE: Final = ErrorCode.NONE
"""A local name for the enum member, because its lookup costs as much as a call."""
NO_EPOCH: Final = -1


class LocalReplicas(Protocol):
    """The replicas of this broker."""

    def find(self, key: PartitionKey) -> Partition | None:
        """The replica with this topic name or topic id, and partition index; None where this broker has none."""

    def why_not(self, topic: str | bytes, index: int) -> ErrorCode:
        """The error for a partition that `find` does not find."""


class InSyncCandidates(Protocol):
    """Proposes in-sync sets to the controller."""

    def may_join(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Propose a follower that has fetched for the in-sync set, if it has caught up."""


def replica_of(request: FetchRequest) -> ReplicaState | None:
    """The follower that fetches; None for a consumer. Before version 15 the request has only the replica's id."""
    if request.replica_state is not None:
        return request.replica_state if request.replica_state.replica_id >= 0 else None
    return ReplicaState(replica_id=request.replica_id) if request.replica_id >= 0 else None


def update_fetch_states(
    replicas: LocalReplicas,
    in_sync: InSyncCandidates,
    replica: ReplicaState,
    wanted: Iterable[tuple[PartitionKey, FetchPartition]],
    now_ms: int,
    updates: UpdatedPartitions | None,
) -> dict[PartitionKey, None]:
    """Note the fetch offsets of a follower, and advance the high watermarks.

    This comes before the plan: the response then reports what the follower's own fetch has committed. Returns the
    partitions in which the follower's log agrees with the leader's. Only their offsets count: a follower whose log
    diverges would confirm records that it is about to truncate (KIP-101).
    """
    agreeing: dict[PartitionKey, None] = {}
    for key, wish in wanted:
        partition = replicas.find(key)
        if partition is None or refusal_of_replica(partition, replica) is not NONE:
            continue
        if partition.check_leader_epoch(wish.current_leader_epoch) is not NONE:
            continue
        log = partition.log
        if log.log_start_offset <= wish.fetch_offset <= log.end_offset and divergence(log, wish) is None:
            agreeing[key] = None
            follower = partition.follower_fetched(
                replica.replica_id, wish.fetch_offset, wish.log_start_offset, replica.replica_epoch, now_ms
            )
            if updates is not None:
                updates.watch(key, partition)
                follower.requests = updates
            in_sync.may_join(partition, replica.replica_id, now_ms)
            partition.advance()
    return agreeing


def refusal_of_replica(partition: Partition, replica: ReplicaState) -> ErrorCode:
    """The error of a follower's fetch: NOT_LEADER_OR_FOLLOWER where this broker does not lead the partition, or where
    the follower's broker epoch is an earlier one.

    A broker that restarts with an empty disk has a new broker epoch, and no longer has what its former process fetched
    (KIP-903).
    """
    leadership = partition.leadership
    follower = leadership.followers.get(replica.replica_id) if leadership is not None else None
    if follower is None or -1 < replica.replica_epoch < follower.broker_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def divergence(log: Log, wish: FetchPartition) -> EpochEnd | None:
    """The end of the client's last epoch in this log; None where the client's log is a prefix of this one (KIP-595).

    `UNDEFINED_END` where this log has no epoch at or below the client's.
    """
    if wish.last_fetched_epoch < 0:
        return None
    end = log.end_offset_for_epoch(wish.last_fetched_epoch)
    agrees = end.epoch == wish.last_fetched_epoch and end.end_offset >= wish.fetch_offset
    return None if agrees else end
