"""Prospective: this node asks the voters for pre-votes before it starts a new epoch (KIP-996).

A voter refuses a pre-vote while it gets responses from the leader. So a node that returns after a network partition
does not end the term of a leader that the other voters follow.
"""

from __future__ import annotations

from moldau.kraft.raft.events import ResponseReceived
from moldau.kraft.raft.leader_discovery import leader_report_of, transition_to_leader
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.roles.role import RaftRole, RequestedVote
from moldau.kraft.raft.roles.unattached import may_vote
from moldau.kraft.raft.roles.vote_collection import VoteCollection
from moldau.kraft.raft.transitions import BecomeCandidate, BecomeFollower, BecomeUnattached, Transition


class ProspectiveRole(RaftRole):
    """The role of a voter that collects pre-votes.

    It keeps the epoch, the leader and the vote of the role before it; quorum-state does not change.
    """

    __slots__ = ("_election_deadline_ms", "_votes")

    def __init__(self, member: QuorumMember) -> None:
        super().__init__(member)
        self._votes = VoteCollection(member, is_pre_vote=True)
        self._votes.grant(member.node_id)
        self._election_deadline_ms = member.election_deadline_ms()

    def enter(self) -> Transition | None:
        return self.tick()

    def tick(self) -> Transition | None:
        if self._votes.is_won:
            return BecomeCandidate()
        if self.member.is_stopping or self._votes.is_lost or self.member.now_ms >= self._election_deadline_ms:
            return self._lost()
        self._votes.ask()
        return None

    def deadline_ms(self) -> int | None:
        retry_ms = self._votes.retry_ms()
        return self._election_deadline_ms if retry_ms is None else min(self._election_deadline_ms, retry_ms)

    def leader_deadline_ms(self) -> int | None:
        return self._election_deadline_ms

    def on_response(self, event: ResponseReceived) -> Transition | None:
        report = leader_report_of(event.response)
        transition = transition_to_leader(self.member, report) if report is not None else None
        if transition is not None:
            return transition
        self._votes.count(event, report)
        return self.tick()

    def grants_vote(self, vote: RequestedVote) -> bool:
        return may_vote(self.member, vote)

    def _lost(self) -> Transition:
        """End a lost election: return the transition to follow the former leader again, if it is known, or to become
        unattached."""
        member = self.member
        if member.has_leader and member.leader_endpoints and member.election.leader_id != member.node_id:
            return BecomeFollower(member.epoch, member.election.leader_id, member.leader_endpoints)
        return BecomeUnattached()
