"""Unattached: this node knows no leader of its epoch.

It asks other nodes for the leader; a voter becomes prospective after a timeout.
"""

from __future__ import annotations

from typing import Final

from moldau.kraft.raft.election_state import NO_NODE
from moldau.kraft.raft.events import Destination, ResponseReceived
from moldau.kraft.raft.leader_discovery import leader_report_of, transition_to_leader
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import fetch_request
from moldau.kraft.raft.roles.role import RaftRole, RequestedVote
from moldau.kraft.raft.transitions import BecomeProspective, Transition

LEADER_QUERY_PAUSE_MS: Final = 50
"""The pause (ms) before the next request, after a response that named no leader or a request without a response."""


class UnattachedRole(RaftRole):
    """The role of a node that knows no leader. In a quorum of one voter, that voter becomes prospective at once."""

    __slots__ = ("_ask_ms", "_election_deadline_ms")

    def __init__(self, member: QuorumMember, election_deadline_ms: int | None = None) -> None:
        """`election_deadline_ms` is the deadline (ms) of the earlier role, if that role waited for a leader, too."""
        super().__init__(member)
        self._ask_ms = member.now_ms
        """The time (ms) from which on this node may ask for the leader again.

        A new leader also informs every voter by itself (BeginQuorumEpoch).
        """
        self._election_deadline_ms = (
            member.election_deadline_ms() if election_deadline_ms is None else election_deadline_ms
        )

    def enter(self) -> Transition | None:
        return self.tick()

    def tick(self) -> Transition | None:
        member = self.member
        if self._may_be_candidate() and (
            member.voters.is_only(member.node_id) or member.now_ms >= self._election_deadline_ms
        ):
            return BecomeProspective()
        self._ask()
        return None

    def deadline_ms(self) -> int | None:
        member = self.member
        deadlines = [self._election_deadline_ms] if self._may_be_candidate() else []
        if self._servers_to_ask() and member.durable_end() is not None:
            deadlines.append(self._ask_ms)
        return min(deadlines, default=None)

    def leader_deadline_ms(self) -> int | None:
        return self._election_deadline_ms

    def on_response(self, event: ResponseReceived) -> Transition | None:
        """Return the transition to follow the leader that the response names; None if it names none."""
        member = self.member
        report = leader_report_of(event.response)
        transition = transition_to_leader(member, report) if report is not None else None
        if transition is None:
            self._ask_ms = member.now_ms + LEADER_QUERY_PAUSE_MS
        return transition

    def grants_vote(self, vote: RequestedVote) -> bool:
        """Whether a vote or a pre-vote is granted, by the rules of `may_vote`."""
        return may_vote(self.member, vote)

    def on_log_flushed(self) -> Transition | None:
        return self.tick()

    def on_snapshot_ended(self) -> Transition | None:
        return self.tick()

    def _may_be_candidate(self) -> bool:
        return self.member.may_be_candidate and not self.member.is_stopping and not self.member.is_loading

    def _ask(self) -> None:
        """Send a Fetch to a server chosen at random; the response names the leader."""
        member = self.member
        end = member.durable_end()
        servers = self._servers_to_ask()
        if servers and end is not None and member.now_ms >= self._ask_ms:
            member.peers.send(servers[member.random.randrange(len(servers))], fetch_request(member, end))

    def _servers_to_ask(self) -> list[Destination]:
        """The servers that may be asked for the leader now; empty while a request to one of them has no response
        yet."""
        servers = self._servers()
        return [] if any(self.member.peers.is_waiting(each.node_id) for each in servers) else servers

    def _servers(self) -> list[Destination]:
        """The servers that can be asked for the leader: the configured bootstrap servers and the voters.

        The voters are asked, too, because the quorum may have moved away from the bootstrap servers.
        """
        member = self.member
        voters = [voter.address(member.identity.listener) for voter in member.other_voters()]
        servers = dict.fromkeys([*member.settings.bootstrap_servers, *voters])
        own = {None, *member.identity.endpoints.values()}
        return [
            Destination(-2 - index, *address)
            for index, address in enumerate(servers)
            if address is not None and address not in own
        ]


def may_vote(member: QuorumMember, vote: RequestedVote) -> bool:
    """Whether a node that follows no leader grants a vote or pre-vote. It grants one vote in an epoch, and only to a
    candidate whose log is at least as long as its own.

    A pre-vote does not bind the voter, so it may be granted to several candidates (KIP-996).
    """
    is_long = member.is_log_as_long(vote.last_epoch, vote.end_offset)
    if vote.is_pre_vote:
        return is_long
    election = member.election
    if election.voted_id >= 0:
        return (election.voted_id, election.voted_directory_id) == member.voted_key(vote.candidate)
    return is_long and election.leader_id == NO_NODE
