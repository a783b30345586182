"""The epoch and the leader that a response names, and the transition that follows from them.

The response of every API between members of the quorum names both, so that nodes learn new epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from moldau.kraft.quorum.voter_set import Address
from moldau.kraft.raft.election_state import NO_NODE
from moldau.kraft.raft.events import IncomingResponse
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.transitions import BecomeFollower, EnterEpoch, Transition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages import begin_quorum_epoch as begin
from moldau.protocol.messages import end_quorum_epoch as end
from moldau.protocol.messages import fetch, fetch_snapshot, vote

ReportedPartition: TypeAlias = (
    vote.ResponsePartitionData
    | begin.ResponsePartitionData
    | end.ResponsePartitionData
    | fetch.PartitionData
    | fetch_snapshot.ResponsePartitionSnapshot
)


class LeaderReport(NamedTuple):
    """The leader and the epoch that one response names, and its one partition."""

    error_code: int
    epoch: int
    leader_id: int
    address: Address | None
    """The leader's address at the listener to which the request was sent; None if the response has none."""
    partition: ReportedPartition

    @property
    def is_success(self) -> bool:
        return self.error_code == ErrorCode.NONE


def leader_report_of(response: IncomingResponse | None) -> LeaderReport | None:
    """The epoch and the leader that a response names. Returns None if there is no response, if the whole response has
    an error, or if it is not about the metadata partition."""
    partition: ReportedPartition
    match response:
        case vote.VoteResponse() | begin.BeginQuorumEpochResponse() | end.EndQuorumEpochResponse():
            if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
                return None
            partition = response.topics[0].partitions[0]
            epoch, leader_id = partition.leader_epoch, partition.leader_id
        case fetch.FetchResponse():
            if response.error_code or len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
                return None
            partition = response.responses[0].partitions[0]
            epoch, leader_id = _current_leader(partition)
        case fetch_snapshot.FetchSnapshotResponse():
            if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
                return None
            partition = response.topics[0].partitions[0]
            epoch, leader_id = _current_leader(partition)
        case _:
            return None
    addresses = {each.node_id: (each.host, each.port) for each in response.node_endpoints}
    return LeaderReport(partition.error_code, epoch, leader_id, addresses.get(leader_id), partition)


def transition_to_leader(member: QuorumMember, report: LeaderReport) -> Transition | None:
    """The transition to follow the leader that a response names; None if this node follows a leader of that epoch
    already, or is in a later epoch."""
    if report.epoch < member.epoch or (report.epoch == member.epoch and member.has_leader):
        return None
    return transition_to(member, report.epoch, report.leader_id, _endpoints(member, report))


def transition_to(
    member: QuorumMember, epoch: int, leader_id: int, endpoints: Mapping[str, Address]
) -> Transition | None:
    """The transition to an epoch, with or without a known leader; None if this node is already in that epoch and learns
    nothing about its leader.

    A node always enters a later epoch (Raft, section 5.1). It follows a leader only if it knows the leader's endpoints.
    """
    can_lead = epoch > member.epoch or member.election.leader_id in (NO_NODE, leader_id)
    if leader_id not in (NO_NODE, member.node_id) and endpoints and can_lead:
        is_known = epoch == member.epoch and member.leader_id == leader_id
        return None if is_known else BecomeFollower(epoch, leader_id, endpoints)
    return EnterEpoch(epoch) if epoch > member.epoch else None


def _current_leader(partition: fetch.PartitionData | fetch_snapshot.ResponsePartitionSnapshot) -> tuple[int, int]:
    leader = partition.current_leader
    return (-1, NO_NODE) if leader is None else (leader.leader_epoch, leader.leader_id)


def _endpoints(member: QuorumMember, report: LeaderReport) -> Mapping[str, Address]:
    if report.address is not None:
        return {member.identity.listener: report.address}
    return member.endpoints_of(report.leader_id)
