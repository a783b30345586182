"""Candidate: a voter that asks the others for their votes in a new epoch, when its vote for itself is durable."""

from __future__ import annotations

from moldau.kraft.raft.events import ResponseReceived
from moldau.kraft.raft.leader_discovery import leader_report_of, transition_to_leader
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.roles.role import RaftRole, RequestedVote
from moldau.kraft.raft.roles.vote_collection import VoteCollection
from moldau.kraft.raft.transitions import BecomeLeader, BecomeProspective, Transition


class CandidateRole(RaftRole):
    """The role of a candidate.

    With a majority of votes it becomes leader. After a lost or undecided election it becomes prospective again.
    """

    __slots__ = ("_deadline_ms", "_is_lost", "_is_saved", "_votes")

    def __init__(self, member: QuorumMember) -> None:
        super().__init__(member)
        self._votes = VoteCollection(member, is_pre_vote=False)
        self._deadline_ms = 0
        """The time (ms) at which the election ends, set when the vote for itself is durable. After a lost election it
        is the end of the backoff."""
        self._is_saved = False
        self._is_lost = False

    def on_election_saved(self) -> Transition | None:
        member = self.member
        if not self._is_saved:
            self._is_saved = True
            self._votes.grant(member.node_id)
            self._deadline_ms = member.election_deadline_ms()
        return self.tick()

    def tick(self) -> Transition | None:
        if not self._is_saved:
            return None
        member, votes = self.member, self._votes
        if votes.is_won and not member.is_stopping:
            return BecomeLeader(votes.granted)
        if member.now_ms >= self._deadline_ms:
            return BecomeProspective()
        if votes.is_lost and not self._is_lost:
            self._is_lost = True
            self._deadline_ms = min(self._deadline_ms, member.now_ms + member.election_backoff_ms())
        if not self._is_lost:
            votes.ask()
        return None

    def deadline_ms(self) -> int | None:
        if not self._is_saved:
            return None
        retry_ms = None if self._is_lost else self._votes.retry_ms()
        return self._deadline_ms if retry_ms is None else min(self._deadline_ms, retry_ms)

    def leader_deadline_ms(self) -> int | None:
        return self._deadline_ms if self._is_saved else None

    def on_response(self, event: ResponseReceived) -> Transition | None:
        report = leader_report_of(event.response)
        transition = transition_to_leader(self.member, report) if report is not None else None
        if transition is not None:
            return transition
        self._votes.count(event, report)
        return self.tick()

    def grants_vote(self, vote: RequestedVote) -> bool:
        """Whether a pre-vote is granted: the candidate's log must be at least as long as this node's. A vote is never
        granted, because this node voted for itself in this epoch."""
        return vote.is_pre_vote and self.member.is_log_as_long(vote.last_epoch, vote.end_offset)
