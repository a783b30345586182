"""Prospective: it asks the voters whether they would vote for it, before it disturbs anybody with a new epoch.

Whoever still hears from a leader says no. So a node that was cut off, and comes back, does not end a term.
"""

from __future__ import annotations

from kraft.raft.events import Answered
from kraft.raft.leader_discovery import heard_in, turn_to_leader
from kraft.raft.member import Member
from kraft.raft.roles.role import Ballot, Role
from kraft.raft.roles.transitions import FollowLeader, GiveUp, Run, Turn
from kraft.raft.roles.unattached import may_vote
from kraft.raft.roles.vote_collection import Canvass


class Prospective(Role):
    """It has the epoch, the leader and the vote of the role before it; nothing is saved."""

    __slots__ = ("_canvass", "_election_deadline_ms")

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._canvass = Canvass(member, is_pre_vote=True)
        self._canvass.grant(member.node_id)
        self._election_deadline_ms = member.election_deadline_ms()

    def enter(self) -> Turn | None:
        return self.tick()

    def tick(self) -> Turn | None:
        if self._canvass.is_won:
            return Run()
        if self.member.is_stopping or self._canvass.is_lost or self.member.now_ms >= self._election_deadline_ms:
            return self._lost()
        self._canvass.ask()
        return None

    def deadline_ms(self) -> int | None:
        retry_ms = self._canvass.retry_ms()
        return self._election_deadline_ms if retry_ms is None else min(self._election_deadline_ms, retry_ms)

    def patience_ms(self) -> int | None:
        return self._election_deadline_ms

    def answered(self, event: Answered) -> Turn | None:
        heard = heard_in(event.response)
        turn = turn_to_leader(self.member, heard) if heard is not None else None
        if turn is not None:
            return turn
        self._canvass.count(event, heard)
        return self.tick()

    def grants(self, ballot: Ballot) -> bool:
        return may_vote(self.member, ballot)

    def _lost(self) -> Turn:
        """Back to the leader that it had: others seem to hear it."""
        member = self.member
        if member.has_leader and member.leader_endpoints and member.election.leader_id != member.node_id:
            return FollowLeader(member.epoch, member.election.leader_id, member.leader_endpoints)
        return GiveUp()
