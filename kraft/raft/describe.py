"""DescribeQuorum: the leader's response with the state of all replicas of the metadata log."""

from __future__ import annotations

from moldau.kraft.quorum.voter_set import ReplicaKey, VoterNode
from moldau.kraft.raft.fetch_service import FetchService
from moldau.kraft.raft.member import METADATA_TOPIC, QuorumMember
from moldau.kraft.raft.replica_states import ReplicaProgress, ReplicaStates
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def describe_leader(member: QuorumMember, replicas: ReplicaStates, service: FetchService) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(
        partition_index=0,
        leader_id=member.node_id,
        leader_epoch=member.epoch,
        high_watermark=service.high_watermark,
        current_voters=[_voter_state(member, replicas, voter) for voter in member.voters.by_id.values()],
        observers=[_state(member, key, progress) for key, progress in replicas.observers()],
    )
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[_node(voter) for voter in member.voters.by_id.values()],
    )


def describe_nothing(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The response to a DescribeQuorum that names other partitions than that of the metadata log. Each partition has
    the error UNKNOWN_TOPIC_OR_PARTITION, as in Apache Kafka."""
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name, partitions=[_unknown(each.partition_index) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _unknown(index: int) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=ERROR_TEXTS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
    )


def _voter_state(member: QuorumMember, replicas: ReplicaStates, voter: VoterNode) -> ReplicaState:
    if voter.id != member.node_id:
        return _state(member, voter.key, replicas.progress_of_voter(voter) or ReplicaProgress())
    return ReplicaState(
        replica_id=voter.id,
        replica_directory_id=voter.directory_id,
        log_end_offset=member.log.end_offset,
        last_fetch_timestamp=member.wall_ms,
        last_caught_up_timestamp=member.wall_ms,
    )


def _state(member: QuorumMember, key: ReplicaKey, progress: ReplicaProgress) -> ReplicaState:
    return ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=_on_the_wall(member, progress.fetch_ms),
        last_caught_up_timestamp=_on_the_wall(member, progress.caught_up_ms),
    )


def _on_the_wall(member: QuorumMember, at_ms: int) -> int:
    """The wall-clock time (ms) of a time on the machine's monotonic clock; -1 if `at_ms` is negative (never)."""
    return -1 if at_ms < 0 else member.wall_ms - (member.now_ms - at_ms)


def _node(voter: VoterNode) -> Node:
    return Node(
        node_id=voter.id,
        listeners=[Listener(name=name, host=host, port=port) for name, (host, port) in voter.endpoints],
    )
