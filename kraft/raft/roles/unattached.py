"""Unattached: it knows of no leader in its epoch. It asks for one, and stands itself once it has waited long enough."""

from __future__ import annotations

from typing import Final

from kraft.raft.election import NOBODY
from kraft.raft.events import Answered, Destination
from kraft.raft.leader_discovery import heard_in, turn_to_leader
from kraft.raft.member import Member
from kraft.raft.outgoing_requests import fetch_request
from kraft.raft.roles.role import Ballot, Role
from kraft.raft.roles.transitions import Stand, Turn

ASK_PAUSE_MS: Final = 50
"""After an answer that named no leader, or none."""


class Unattached(Role):
    """The only voter need not ask whether anybody leads: it stands at once."""

    __slots__ = ("_ask_ms", "_election_deadline_ms")

    def __init__(self, member: Member, election_deadline_ms: int | None = None) -> None:
        """The deadline of the role before it, where that was waiting too."""
        super().__init__(member)
        self._ask_ms = member.now_ms
        """When it may ask again; a voter is told by the next leader anyway."""
        self._election_deadline_ms = (
            member.election_deadline_ms() if election_deadline_ms is None else election_deadline_ms
        )

    def enter(self) -> Turn | None:
        return self.tick()

    def tick(self) -> Turn | None:
        member = self.member
        if self._may_stand() and (member.voters.is_only(member.node_id) or member.now_ms >= self._election_deadline_ms):
            return Stand()
        self._ask()
        return None

    def deadline_ms(self) -> int | None:
        member = self.member
        deadlines = [self._election_deadline_ms] if self._may_stand() else []
        if self._askable() and member.durable_end() is not None:
            deadlines.append(self._ask_ms)
        return min(deadlines, default=None)

    def patience_ms(self) -> int | None:
        return self._election_deadline_ms

    def answered(self, event: Answered) -> Turn | None:
        """Of any member that was asked for the leader: follow the one it names."""
        member = self.member
        heard = heard_in(event.response)
        turn = turn_to_leader(member, heard) if heard is not None else None
        if turn is None:
            self._ask_ms = member.now_ms + ASK_PAUSE_MS
        return turn

    def grants(self, ballot: Ballot) -> bool:
        """One vote in an epoch, and only to a log that is at least as long."""
        return may_vote(self.member, ballot)

    def flushed(self) -> Turn | None:
        return self.tick()

    def snapshot_ended(self) -> Turn | None:
        return self.tick()

    def _may_stand(self) -> bool:
        return self.member.may_stand and not self.member.is_stopping and not self.member.is_loading

    def _ask(self) -> None:
        """One server at a time, any of them."""
        member = self.member
        end = member.durable_end()
        servers = self._askable()
        if servers and end is not None and member.now_ms >= self._ask_ms:
            member.peers.send(servers[member.random.randrange(len(servers))], fetch_request(member, end))

    def _askable(self) -> list[Destination]:
        """None while one of them has not answered yet."""
        servers = self._servers()
        return [] if any(self.member.peers.is_waiting(each.node_id) for each in servers) else servers

    def _servers(self) -> list[Destination]:
        """Those of the configuration, and the voters: the former may have been left behind by the latter."""
        member = self.member
        voters = [voter.address(member.identity.listener) for voter in member.other_voters()]
        servers = dict.fromkeys([*member.settings.bootstrap_servers, *voters])
        own = {None, *member.identity.endpoints.values()}
        return [
            Destination(-2 - index, *address)
            for index, address in enumerate(servers)
            if address is not None and address not in own
        ]


def may_vote(member: Member, ballot: Ballot) -> bool:
    """Of a node that follows nobody in its epoch: one vote, and only to a log that is at least as long."""
    is_long = member.is_log_as_long(ballot.last_epoch, ballot.end_offset)
    if ballot.is_pre_vote:
        return is_long
    election = member.election
    if election.voted_id >= 0:
        return (election.voted_id, election.voted_directory_id) == member.voted_key(ballot.candidate)
    return is_long and election.leader_id == NOBODY
