"""The requests that this node receives: validated, compared with the epoch of this node, and answered by its role.

Vote, BeginQuorumEpoch, EndQuorumEpoch     to a voter: a later epoch is entered, an earlier one refused
Fetch, FetchSnapshot, UpdateRaftVoter      only to the leader of the same epoch
DescribeQuorum, AddRaftVoter, RemoveRaftVoter    to the leader, whatever its epoch
"""

from __future__ import annotations

from typing import Protocol

from moldau.kraft.quorum.voter_set import ReplicaKey
from moldau.kraft.raft.describe import describe_nothing
from moldau.kraft.raft.events import RequestReceived, Respond
from moldau.kraft.raft.leader_discovery import transition_to
from moldau.kraft.raft.member import METADATA_TOPIC, METADATA_TOPIC_ID, QuorumMember
from moldau.kraft.raft.replica_states import replica_id_of
from moldau.kraft.raft.responses import begin_response, end_response, error_response, top_level_error, vote_response
from moldau.kraft.raft.roles.role import RaftRole, RequestedVote
from moldau.kraft.raft.transitions import EnterEpoch, GrantVote, Transition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, PartitionData
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.protocol.schema import ZERO_UUID


class Machine(Protocol):
    """The part of the Raft machine that the handlers of requests use."""

    member: QuorumMember
    role: RaftRole

    @property
    def is_leader(self) -> bool: ...

    def transition(self, transition: Transition | None) -> None: ...


def handle_request(machine: Machine, event: RequestReceived) -> None:
    """Validate a request and respond, or leave the response to the leader's role."""
    member, request = machine.member, event.request
    if isinstance(request, DescribeQuorumRequest) and not _is_about_the_partition(event):
        member.put(Respond(event.token, describe_nothing(request)))
        return
    error = _error_of_whole(member, event)
    if error is not ErrorCode.NONE:
        member.put(Respond(event.token, top_level_error(member, request, event.listener, error)))
        return
    match request:
        case VoteRequest():
            _vote(machine, event, request)
        case BeginQuorumEpochRequest():
            _begin_epoch(machine, event, request)
        case EndQuorumEpochRequest():
            _end_epoch(machine, event, request)
        case _:
            _to_leader(machine, event)


def _error_of_whole(member: QuorumMember, event: RequestReceived) -> ErrorCode:
    request = event.request
    if not isinstance(request, DescribeQuorumRequest) and request.cluster_id not in (None, member.identity.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.NONE if _is_about_the_partition(event) else ErrorCode.INVALID_REQUEST


def _is_about_the_partition(event: RequestReceived) -> bool:
    """Whether a request names partition 0 of the metadata topic and no other partition. A fetch names the topic by its
    id."""
    match event.request:
        case FetchRequest() as request:
            named = [
                (topic.topic_id == METADATA_TOPIC_ID, each.partition)
                for topic in request.topics
                for each in topic.partitions
            ]
        case FetchSnapshotRequest() as request:
            named = [
                (topic.name == METADATA_TOPIC, each.partition) for topic in request.topics for each in topic.partitions
            ]
        case VoteRequest() | BeginQuorumEpochRequest() | EndQuorumEpochRequest() | DescribeQuorumRequest() as request:
            named = [
                (topic.topic_name == METADATA_TOPIC, each.partition_index)
                for topic in request.topics
                for each in topic.partitions
            ]
        case _:
            return True
    return len(request.topics) == 1 and named == [(True, 0)]


# To a voter


def _vote(machine: Machine, event: RequestReceived, request: VoteRequest) -> None:
    member = machine.member
    (partition,) = request.topics[0].partitions
    candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
    vote = RequestedVote(candidate, partition.last_offset_epoch, partition.last_offset, partition.pre_vote)
    error, is_granted = ErrorCode.NONE, False
    if not _is_valid_vote(vote, partition.replica_epoch):
        error = ErrorCode.INVALID_REQUEST
    elif partition.replica_epoch < member.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    else:
        # This node enters a later epoch even if it refuses the vote (Raft, section 5.1).
        if partition.replica_epoch > member.epoch:
            machine.transition(EnterEpoch(partition.replica_epoch))
        if not _is_this_voter(member, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            is_granted = machine.role.grants_vote(vote)
    if is_granted and not vote.is_pre_vote and member.election.voted_id < 0:
        machine.transition(GrantVote(candidate))
    member.put(Respond(event.token, vote_response(member, event.listener, error, is_granted=is_granted)))


def _is_valid_vote(vote: RequestedVote, epoch: int) -> bool:
    """Whether a vote request is consistent: a candidate can have no record of the epoch in which it wants to lead.

    A vote request names that epoch, a pre-vote request the epoch before it.
    """
    last_epoch_max = epoch if vote.is_pre_vote else epoch - 1
    return vote.candidate.id >= 0 and 0 <= vote.last_epoch <= last_epoch_max and vote.end_offset >= 0


def _begin_epoch(machine: Machine, event: RequestReceived, request: BeginQuorumEpochRequest) -> None:
    member = machine.member
    (partition,) = request.topics[0].partitions
    error = _error_in_claim(member, partition.leader_epoch, partition.leader_id)
    if error is ErrorCode.NONE and not _is_this_voter(member, request.voter_id, partition.voter_directory_id):
        error = ErrorCode.INVALID_VOTER_KEY
    if error is ErrorCode.NONE:
        endpoints = {each.name: (each.host, each.port) for each in request.leader_endpoints}
        _learn_leader(machine, partition.leader_epoch, partition.leader_id, endpoints)
    member.put(Respond(event.token, begin_response(member, event.listener, error)))


def _end_epoch(machine: Machine, event: RequestReceived, request: EndQuorumEpochRequest) -> None:
    member = machine.member
    (partition,) = request.topics[0].partitions
    error = _error_in_claim(member, partition.leader_epoch, partition.leader_id)
    if error is ErrorCode.NONE:
        endpoints = {each.name: (each.host, each.port) for each in request.leader_endpoints}
        _learn_leader(machine, partition.leader_epoch, partition.leader_id, endpoints)
        machine.role.on_leader_resigned(*_position(member, event.version, partition))
    member.put(Respond(event.token, end_response(member, event.listener, error)))


def _learn_leader(machine: Machine, epoch: int, leader_id: int, endpoints: dict[str, tuple[str, int]]) -> None:
    """Follow the leader that a BeginQuorumEpoch or EndQuorumEpoch names. Version 0 of these requests has no endpoints,
    so the leader's endpoints in the voter set are used."""
    transition = transition_to(machine.member, epoch, leader_id, endpoints or machine.member.endpoints_of(leader_id))
    if transition is not None:
        machine.transition(transition)


def _position(member: QuorumMember, version: int, partition: PartitionData) -> tuple[int, int]:
    """The index of this node among the preferred candidates of an EndQuorumEpoch, and the number of indexes. A node
    that is not among the candidates has the last index."""
    if version == 0:
        preferred = [ReplicaKey(each) for each in partition.preferred_successors]
        key = ReplicaKey(member.node_id)
    else:
        preferred = [
            ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates
        ]
        key = member.voted_key(member.key)
    position = preferred.index(key) if key in preferred else len(preferred)
    return position, len(preferred) + 1


def _error_in_claim(member: QuorumMember, epoch: int, leader_id: int) -> ErrorCode:
    """The error of a request that names the leader of an epoch; NONE if the request may be accepted. A request that
    names this node as the leader is refused, unless this node leads in the epoch.

    DIVERGES: if a request names another leader for an epoch whose leader is known, Apache Kafka's process ends; here
    the request is refused.
    """
    if epoch < member.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    known_id = member.election.leader_id if epoch == member.epoch else -1
    is_itself = leader_id == member.node_id != known_id
    is_another = known_id not in (-1, leader_id)
    return ErrorCode.INVALID_REQUEST if leader_id < 0 or is_itself or is_another else ErrorCode.NONE


def _is_this_voter(member: QuorumMember, voter_id: int, directory_id: bytes) -> bool:
    """Whether a request is for this replica. A request that names no voter (an early version) or no directory id
    (kraft.version 0) is taken to be for it. A node with a new disk is another replica, and must not vote as the earlier
    one (KIP-853)."""
    return voter_id < 0 or (voter_id == member.node_id and directory_id in (ZERO_UUID, member.identity.directory_id))


# To the leader


def _to_leader(machine: Machine, event: RequestReceived) -> None:
    member, request = machine.member, event.request
    match request:
        case FetchRequest():
            (fetch_partition,) = request.topics[0].partitions
            epoch = fetch_partition.current_leader_epoch
            is_possible = _is_valid_fetch(request, fetch_partition)
        case FetchSnapshotRequest():
            (snapshot_partition,) = request.topics[0].partitions
            epoch, is_possible = snapshot_partition.current_leader_epoch, True
        case UpdateRaftVoterRequest():
            epoch, is_possible = request.current_leader_epoch, True
        case _:
            epoch, is_possible = member.epoch, True
    error = _error_for_leader(machine, epoch) if is_possible else ErrorCode.INVALID_REQUEST
    if error is ErrorCode.NONE and isinstance(request, FetchRequest) and replica_id_of(request) == member.node_id:
        error = ErrorCode.UNKNOWN_SERVER_ERROR  # the leader does not fetch from itself
    if error is not ErrorCode.NONE:
        member.put(Respond(event.token, error_response(member, event, error)))
        return
    transition = machine.role.on_request(event)
    if transition is not None:
        machine.transition(transition)


def _is_valid_fetch(request: FetchRequest, partition: FetchPartition) -> bool:
    is_within = 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch
    return is_within and partition.fetch_offset >= 0 and request.max_wait_ms >= 0


def _error_for_leader(machine: Machine, epoch: int) -> ErrorCode:
    member = machine.member
    if epoch != member.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < member.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if machine.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
