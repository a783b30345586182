"""The responses to the requests of the quorum's APIs. Each response names the leader if this node knows it."""

from __future__ import annotations

from typing import Final, TypeAlias

from moldau.kraft.raft.events import QuorumRequest, QuorumResponse, RequestReceived
from moldau.kraft.raft.log_view import OffsetAndEpoch
from moldau.kraft.raft.member import METADATA_TOPIC, METADATA_TOPIC_ID, QuorumMember
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import add_raft_voter, describe_quorum, fetch, fetch_snapshot, remove_raft_voter, vote
from moldau.protocol.messages import begin_quorum_epoch as begin
from moldau.protocol.messages import end_quorum_epoch as end
from moldau.protocol.messages import update_raft_voter as update

Endpoint: TypeAlias = tuple[int, str, int]


def vote_response(
    member: QuorumMember, listener: str, error: ErrorCode, *, is_granted: bool = False
) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(
        partition_index=0,
        error_code=error,
        leader_id=member.leader_id,
        leader_epoch=member.epoch,
        vote_granted=is_granted,
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            vote.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in leader_endpoint_at(member, listener)
        ],
    )


def begin_response(member: QuorumMember, listener: str, error: ErrorCode) -> begin.BeginQuorumEpochResponse:
    partition = begin.ResponsePartitionData(
        partition_index=0, error_code=error, leader_id=member.leader_id, leader_epoch=member.epoch
    )
    return begin.BeginQuorumEpochResponse(
        topics=[begin.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            begin.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in leader_endpoint_at(member, listener)
        ],
    )


def end_response(member: QuorumMember, listener: str, error: ErrorCode) -> end.EndQuorumEpochResponse:
    partition = end.ResponsePartitionData(
        partition_index=0, error_code=error, leader_id=member.leader_id, leader_epoch=member.epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            end.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in leader_endpoint_at(member, listener)
        ],
    )


VERSION_WITH_ENDPOINTS: Final = 17
"""The first version of Fetch in which Apache Kafka's response has the leader's endpoint, though version 16 has the
field."""


def fetch_response(
    member: QuorumMember,
    listener: str,
    version: int,
    error: ErrorCode,
    *,
    high_watermark: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot: SnapshotId | None = None,
) -> fetch.FetchResponse:
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=member.log.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=member.leader_id, leader_epoch=member.epoch),
        records=b"",
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(
        responses=[topic],
        node_endpoints=[
            fetch.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in leader_endpoint_at(member, listener)
            if version >= VERSION_WITH_ENDPOINTS
        ],
    )


def fetch_snapshot_response(
    member: QuorumMember,
    listener: str,
    error: ErrorCode,
    snapshot_id: fetch_snapshot.SnapshotId,
    *,
    size: int = 0,
    position: int = 0,
) -> fetch_snapshot.FetchSnapshotResponse:
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=snapshot_id,
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=member.leader_id, leader_epoch=member.epoch),
        size=size,
        position=position,
        unaligned_records=b"",
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            fetch_snapshot.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in leader_endpoint_at(member, listener)
        ],
    )


def update_voter_response(member: QuorumMember, listener: str, error: ErrorCode) -> update.UpdateRaftVoterResponse:
    leader = update.CurrentLeader(leader_id=member.leader_id, leader_epoch=member.epoch)
    for _, host, port in leader_endpoint_at(member, listener):
        leader.host, leader.port = host, port
    return update.UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def error_response(member: QuorumMember, event: RequestReceived, error: ErrorCode) -> QuorumResponse:
    """The response that refuses a request. The error is in the field that Apache Kafka uses in this kind of
    response."""
    request, listener = event.request, event.listener
    match request:
        case vote.VoteRequest():
            return vote_response(member, listener, error)
        case begin.BeginQuorumEpochRequest():
            return begin_response(member, listener, error)
        case end.EndQuorumEpochRequest():
            return end_response(member, listener, error)
        case fetch.FetchRequest():
            return fetch_response(member, listener, event.version, error)
        case fetch_snapshot.FetchSnapshotRequest():
            return fetch_snapshot_response(member, listener, error, request.topics[0].partitions[0].snapshot_id)
    return top_level_error(member, request, listener, error)


def top_level_error(member: QuorumMember, request: QuorumRequest, listener: str, error: ErrorCode) -> QuorumResponse:
    """The response to a request of another cluster or for another partition: the error is at the top level."""
    match request:
        case vote.VoteRequest():
            return vote.VoteResponse(error_code=error)
        case begin.BeginQuorumEpochRequest():
            return begin.BeginQuorumEpochResponse(error_code=error)
        case end.EndQuorumEpochRequest():
            return end.EndQuorumEpochResponse(error_code=error)
        case fetch.FetchRequest():
            return fetch.FetchResponse(error_code=error)
        case fetch_snapshot.FetchSnapshotRequest():
            return fetch_snapshot.FetchSnapshotResponse(error_code=error)
        case describe_quorum.DescribeQuorumRequest():
            return describe_quorum.DescribeQuorumResponse(error_code=error)
        case add_raft_voter.AddRaftVoterRequest():
            text = _announced(member, request.cluster_id, error)
            return add_raft_voter.AddRaftVoterResponse(error_code=error, error_message=text)
        case remove_raft_voter.RemoveRaftVoterRequest():
            text = _announced(member, request.cluster_id, error)
            return remove_raft_voter.RemoveRaftVoterResponse(error_code=error, error_message=text)
        case update.UpdateRaftVoterRequest():
            return update_voter_response(member, listener, error)


def _announced(member: QuorumMember, cluster_id: str | None, error: ErrorCode) -> str | None:
    if error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
        return None
    return f'The given id "{cluster_id}" doesn\'t match the cluster id "{member.identity.cluster_id}"'


def leader_endpoint_at(member: QuorumMember, listener: str) -> list[Endpoint]:
    """The node endpoints of a response: that of the leader, or none.

    Its address is that of the leader at the listener at which the request arrived, or else at the quorum's own
    listener.
    """
    endpoints = member.leader_endpoints
    address = endpoints.get(listener) or endpoints.get(member.identity.listener)
    return [] if address is None else [(member.leader_id, *address)]
