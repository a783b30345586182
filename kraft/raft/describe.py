"""DescribeQuorum: the leader's view of all replicas of the metadata log."""

from __future__ import annotations

from kraft.raft.fetch_service import FetchService
from kraft.raft.member import METADATA_TOPIC, Member
from kraft.raft.replicas import Progress, Replicas
from kraft.raft.voters import ReplicaKey, Voter
from protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def describe_leader(member: Member, replicas: Replicas, service: FetchService) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=member.node_id,
        leader_epoch=member.epoch,
        high_watermark=service.high_watermark,
        current_voters=[_voter_state(member, replicas, voter) for voter in member.voters.by_id.values()],
        observers=[_state(member, key, progress) for key, progress in replicas.observers()],
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[_node(voter) for voter in member.voters.by_id.values()],
    )


def _voter_state(member: Member, replicas: Replicas, voter: Voter) -> ReplicaState:
    if voter.id != member.node_id:
        return _state(member, voter.key, replicas.of_voter(voter) or Progress())
    return ReplicaState(
        replica_id=voter.id,
        replica_directory_id=voter.directory_id,
        log_end_offset=member.log.end_offset,
        last_fetch_timestamp=member.wall_ms,
        last_caught_up_timestamp=member.wall_ms,
    )


def _state(member: Member, key: ReplicaKey, progress: Progress) -> ReplicaState:
    return ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=_on_the_wall(member, progress.fetch_ms),
        last_caught_up_timestamp=_on_the_wall(member, progress.caught_up_ms),
    )


def _on_the_wall(member: Member, at_ms: int) -> int:
    """The machine counts on a clock that nobody sets; -1 for never."""
    return -1 if at_ms < 0 else member.wall_ms - (member.now_ms - at_ms)


def _node(voter: Voter) -> Node:
    return Node(
        node_id=voter.id,
        listeners=[Listener(name=name, host=host, port=port) for name, (host, port) in voter.endpoints],
    )
