"""The entry that the voters record should have for this node, and the request that corrects the entry."""

from __future__ import annotations

from moldau.kraft.quorum.voter_set import VoterNode
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import add_voter_request, remove_voter_request, update_voter_request
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest

ChangeOfItself = UpdateRaftVoterRequest | AddRaftVoterRequest | RemoveRaftVoterRequest


def own_description(member: QuorumMember) -> VoterNode:
    identity = member.identity
    return VoterNode(identity.node_id, identity.directory_id, tuple(identity.endpoints.items()))


def describes_voter(member: QuorumMember) -> bool:
    voter = member.voters.by_id.get(member.node_id)
    return voter is not None and voter.is_described_as(own_description(member))


def change_of_itself(member: QuorumMember) -> ChangeOfItself | None:
    """The request that corrects this node's entry in the voters record; None if the entry is right.

    With controller.quorum.auto.join.enable, a controller that is not a voter adds itself. If the voter set has its node
    id with another directory id, the first request removes that voter.
    """
    if member.history.kraft_version == 0:
        return update_voter_request(member) if member.is_voter else None
    if member.is_voter:
        return None if describes_voter(member) else update_voter_request(member)
    if not (member.settings.auto_join and member.identity.is_controller) or member.is_stopping:
        return None
    former = member.voters.by_id.get(member.node_id)
    return add_voter_request(member) if former is None else remove_voter_request(member, former)
