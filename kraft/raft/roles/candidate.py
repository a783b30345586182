"""Candidate: a voter that stands for an epoch. Its own vote counts, and others are asked, once it is durable."""

from __future__ import annotations

from kraft.raft.events import Answered
from kraft.raft.leader_discovery import heard_in, turn_to_leader
from kraft.raft.member import Member
from kraft.raft.roles.role import Ballot, Role
from kraft.raft.roles.transitions import Stand, Turn, Win
from kraft.raft.roles.vote_collection import Canvass


class Candidate(Role):
    __slots__ = ("_canvass", "_deadline_ms", "_is_lost", "_is_saved")

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._canvass = Canvass(member, is_pre_vote=False)
        self._deadline_ms = 0
        """Of the election, from when the vote is durable; of the pause after it was lost."""
        self._is_saved = False
        self._is_lost = False

    def saved(self) -> Turn | None:
        member = self.member
        if not self._is_saved:
            self._is_saved = True
            self._canvass.grant(member.node_id)
            self._deadline_ms = member.election_deadline_ms()
        return self.tick()

    def tick(self) -> Turn | None:
        if not self._is_saved:
            return None
        member, canvass = self.member, self._canvass
        if canvass.is_won and not member.is_stopping:
            return Win(canvass.granted)
        if member.now_ms >= self._deadline_ms:
            return Stand()
        if canvass.is_lost and not self._is_lost:
            self._is_lost = True
            self._deadline_ms = min(self._deadline_ms, member.now_ms + member.election_pause_ms())
        if not self._is_lost:
            canvass.ask()
        return None

    def deadline_ms(self) -> int | None:
        if not self._is_saved:
            return None
        retry_ms = None if self._is_lost else self._canvass.retry_ms()
        return self._deadline_ms if retry_ms is None else min(self._deadline_ms, retry_ms)

    def patience_ms(self) -> int | None:
        return self._deadline_ms if self._is_saved else None

    def answered(self, event: Answered) -> Turn | None:
        heard = heard_in(event.response)
        turn = turn_to_leader(self.member, heard) if heard is not None else None
        if turn is not None:
            return turn
        self._canvass.count(event, heard)
        return self.tick()

    def grants(self, ballot: Ballot) -> bool:
        """It has voted for itself; a later epoch is another matter."""
        return ballot.is_pre_vote and self.member.is_log_as_long(ballot.last_epoch, ballot.end_offset)
