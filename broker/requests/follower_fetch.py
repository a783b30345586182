"""What a fetch says of whoever sends it: a replica that follows this leader, or a consumer, and what each may read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, ReplicaState
from replication.fetch_session import PartitionKey
from replication.partition import Partition
from replication.replica_news import ReplicaNews
from storage.checkpoints.leader_epochs import EpochEnd
from storage.log.log import Log

if TYPE_CHECKING:
    from broker.node.node import Node as Broker

FOLLOWER_READS_VERSION: Final = 11
"""From this version on consumers name their rack, and may read from followers (KIP-392)."""
NO_EPOCH: Final = -1


def replica_of(request: FetchRequest) -> ReplicaState | None:
    """The broker that follows us, where it is one that asks: a field of its own, or a plain id in early versions."""
    if request.replica_state is not None:
        return request.replica_state if request.replica_state.replica_id >= 0 else None
    return ReplicaState(replica_id=request.replica_id) if request.replica_id >= 0 else None


def note_positions(
    broker: Broker,
    replica: ReplicaState,
    wanted: Iterable[tuple[PartitionKey, FetchPartition]],
    now_ms: int,
    news: ReplicaNews | None = None,
) -> dict[PartitionKey, None]:
    """Before anything is read: what a follower asks for says what it has, and may commit what is then told to it.

    The partitions in which its log agrees with ours.
    """
    agreeing: dict[PartitionKey, None] = {}
    for key, wish in wanted:
        partition = broker.replicas.find(key)
        if partition is None or refusal_of_replica(partition, replica) is not ErrorCode.NONE:
            continue
        if partition.check_leader_epoch(wish.current_leader_epoch) is not ErrorCode.NONE:
            continue
        log = partition.log
        if log.log_start_offset <= wish.fetch_offset <= log.end_offset and divergence(log, wish) is None:
            agreeing[key] = None
            follower = partition.follower_fetched(
                replica.replica_id, wish.fetch_offset, wish.log_start_offset, replica.replica_epoch, now_ms
            )
            if news is not None:
                news.watch(key, partition)
                follower.news = news
            broker.in_sync_changes.may_join(partition, replica.replica_id, now_ms)
            partition.advance()
    return agreeing


def refusal_of_replica(partition: Partition, replica: ReplicaState) -> ErrorCode:
    """NOT_LEADER_OR_FOLLOWER to whoever follows somebody else, and to a former incarnation of a follower (KIP-903)."""
    leadership = partition.leadership
    follower = leadership.followers.get(replica.replica_id) if leadership is not None else None
    if follower is None or -1 < replica.replica_epoch < follower.broker_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def divergence(log: Log, wish: FetchPartition) -> EpochEnd | None:
    """Where the asker's last epoch ends here, if its log goes on past that; `UNDEFINED_END` where we cannot tell."""
    if wish.last_fetched_epoch < 0:
        return None
    end = log.end_offset_for_epoch(wish.last_fetched_epoch)
    agrees = end.epoch == wish.last_fetched_epoch and end.end_offset >= wish.fetch_offset
    return None if agrees else end


def refusal_of(version: int, partition: Partition, wish: FetchPartition, replica: ReplicaState | None) -> ErrorCode:
    """Replicas read from the leader alone; consumers may read from followers since they can say where they are."""
    refusal = partition.check_leader_epoch(max(wish.current_leader_epoch, NO_EPOCH))
    if refusal is not ErrorCode.NONE:
        return refusal
    if replica is not None:
        return refusal_of_replica(partition, replica)
    may_read = partition.is_leader or version >= FOLLOWER_READS_VERSION
    return ErrorCode.NONE if may_read else ErrorCode.NOT_LEADER_OR_FOLLOWER
