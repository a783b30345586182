"""This node as a voter: what the voters record should say of it."""

from __future__ import annotations

from kraft.raft.member import Member
from kraft.raft.voters import Voter


def own_description(member: Member) -> Voter:
    identity = member.identity
    return Voter(identity.node_id, identity.directory_id, tuple(identity.endpoints.items()))


def describes_voter(member: Member) -> bool:
    voter = member.voters.by_id.get(member.node_id)
    return voter is not None and voter.is_described_as(own_description(member))
