"""The collection of votes or pre-votes: requests to the voters, and the counts of granted and refused votes."""

from __future__ import annotations

from typing import Final

from moldau.kraft.quorum.voter_set import VoterNode
from moldau.kraft.raft.events import ResponseReceived
from moldau.kraft.raft.leader_discovery import LeaderReport
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import vote_request
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.vote import ResponsePartitionData, VoteResponse

PRE_VOTE_PAUSE_MS: Final = 150


class VoteCollection:
    """The votes or pre-votes of one election. A majority is counted among the current voters, which may change during
    the election."""

    def __init__(self, member: QuorumMember, *, is_pre_vote: bool) -> None:
        self._member = member
        self._is_pre_vote = is_pre_vote
        self._granted: list[int] = []
        """The ids of the voters that granted a vote, in the order of their responses."""
        self._refused: set[int] = set()
        self._ask_again_ms = 0
        """The time (ms) from which on the voters that refused a pre-vote may be asked again."""

    @property
    def granted(self) -> tuple[int, ...]:
        return tuple(self._granted)

    def grant(self, voter_id: int) -> None:
        if voter_id not in self._granted:
            self._granted.append(voter_id)

    @property
    def is_won(self) -> bool:
        voters = self._member.voters
        return sum(voter_id in voters.by_id for voter_id in self._granted) >= voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether the granted votes are fewer than a majority even if all voters that have not refused grant theirs."""
        voters = self._member.voters
        return len(voters.ids) - sum(voter_id in voters.by_id for voter_id in self._refused) < voters.majority

    def count(self, event: ResponseReceived, report: LeaderReport | None) -> None:
        """Count the response of a voter. A voter that gave no usable response is asked again later."""
        voter_id = event.to.node_id
        if (
            report is not None
            and report.epoch == self._member.epoch
            and isinstance(report.partition, ResponsePartitionData)
        ):
            if report.is_success and report.partition.vote_granted:
                self._refused.discard(voter_id)
                self.grant(voter_id)
            else:
                self._refused.add(voter_id)
                self._ask_again_ms = self._member.now_ms + PRE_VOTE_PAUSE_MS
        elif self._is_pre_vote and _knows_no_pre_vote(event):
            self.grant(voter_id)  # A release without pre-votes is asked for its vote in the election itself.
        elif event.response is not None:
            self._member.peers.back_off(voter_id, self._member.now_ms)

    def ask(self) -> None:
        """Send a request to every voter that has not answered and may be asked now."""
        member = self._member
        for voter in self._open():
            to = member.destination(voter)
            if to is not None and member.peers.can_send(voter.id, member.now_ms):
                member.peers.send(to, vote_request(member, voter, is_pre_vote=self._is_pre_vote))

    def retry_ms(self) -> int | None:
        """The time (ms) at which the next voter may be asked again; None if none is to be asked again."""
        peers = self._member.peers
        times = [peers.ready_ms(voter.id) for voter in self._open() if not peers.is_waiting(voter.id)]
        return min([*times, self._ask_again_ms] if self._may_ask_again_later() else times, default=None)

    def _open(self) -> list[VoterNode]:
        member = self._member
        response_received = {*self._granted, *(self._refused if not self._may_ask_again() else ())}
        voters = member.other_voters()
        return [each for each in voters if each.id not in response_received and member.destination(each) is not None]

    def _may_ask_again(self) -> bool:
        """Whether a voter that refused may be asked again: only for a pre-vote.

        The voter may have refused because it had just received something from a leader that has failed since. DIVERGES:
        Apache Kafka asks each voter once; after a refusal the node waits for its election timeout.
        """
        return self._is_pre_vote and self._member.now_ms >= self._ask_again_ms

    def _may_ask_again_later(self) -> bool:
        return self._is_pre_vote and bool(self._refused) and not self._may_ask_again()


def _knows_no_pre_vote(event: ResponseReceived) -> bool:
    return isinstance(event.response, VoteResponse) and event.response.error_code == ErrorCode.UNSUPPORTED_VERSION
