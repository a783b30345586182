"""What an answer says of the leader, whatever the question was: epochs spread by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kraft.raft.election import NOBODY
from kraft.raft.events import SentResponse
from kraft.raft.member import Member
from kraft.raft.roles.transitions import EnterEpoch, FollowLeader, Turn
from kraft.raft.voters.voters import Address
from protocol.errors import ErrorCode
from protocol.messages import begin_quorum_epoch as begin
from protocol.messages import end_quorum_epoch as end
from protocol.messages import fetch, fetch_snapshot, vote

Partition: TypeAlias = (
    vote.ResponsePartitionData
    | begin.ResponsePartitionData
    | end.ResponsePartitionData
    | fetch.PartitionData
    | fetch_snapshot.ResponsePartitionSnapshot
)


class Hearsay(NamedTuple):
    error_code: int
    epoch: int
    leader_id: int
    address: Address | None
    """Of the leader, at the listener by which the question was sent."""
    partition: Partition

    @property
    def is_success(self) -> bool:
        return self.error_code == ErrorCode.NONE


def heard_in(response: SentResponse | None) -> Hearsay | None:
    """None where there was no answer, or one that is an error as a whole or not about the one partition."""
    partition: Partition
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
    return Hearsay(partition.error_code, epoch, leader_id, addresses.get(leader_id), partition)


def turn_to_leader(member: Member, heard: Hearsay) -> Turn | None:
    """None where nothing new was heard."""
    if heard.epoch < member.epoch or (heard.epoch == member.epoch and member.has_leader):
        return None
    return turn_to(member, heard.epoch, heard.leader_id, _endpoints(member, heard))


def turn_to(member: Member, epoch: int, leader_id: int, endpoints: Mapping[str, Address]) -> Turn | None:
    """Into an epoch, led by somebody or nobody; None where this node is in it and knows as much."""
    can_lead = epoch > member.epoch or member.election.leader_id in (NOBODY, leader_id)
    if leader_id not in (NOBODY, member.node_id) and endpoints and can_lead:
        is_known = epoch == member.epoch and member.leader_id == leader_id
        return None if is_known else FollowLeader(epoch, leader_id, endpoints)
    return EnterEpoch(epoch) if epoch > member.epoch else None


def _current_leader(partition: fetch.PartitionData | fetch_snapshot.ResponsePartitionSnapshot) -> tuple[int, int]:
    leader = partition.current_leader
    return (-1, NOBODY) if leader is None else (leader.leader_epoch, leader.leader_id)


def _endpoints(member: Member, heard: Hearsay) -> Mapping[str, Address]:
    if heard.address is not None:
        return {member.identity.listener: heard.address}
    return member.endpoints_of(heard.leader_id)
