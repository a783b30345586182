"""Resigned: this node led the epoch and no longer leads. It informs the voters, so that none waits for a timeout."""

from __future__ import annotations

from moldau.kraft.quorum.voter_set import ReplicaKey, VoterNode
from moldau.kraft.raft.events import ResponseReceived, Stopped
from moldau.kraft.raft.leader_discovery import leader_report_of, transition_to_leader
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import end_request
from moldau.kraft.raft.roles.role import RaftRole, RequestedVote
from moldau.kraft.raft.transitions import EnterEpoch, Transition


class ResignedRole(RaftRole):
    """The role of a former leader.

    It cannot lead its epoch again. After an election timeout it enters the next epoch.
    """

    __slots__ = ("_acknowledged", "_election_deadline_ms", "_is_stopped", "_preferred", "_stop_deadline_ms")

    def __init__(self, member: QuorumMember, preferred: tuple[ReplicaKey, ...], stop_timeout_ms: int | None) -> None:
        """`stop_timeout_ms` is the time for which a node that stops tries to inform the other voters; None if the node
        does not stop."""
        super().__init__(member)
        self._preferred = preferred
        self._acknowledged: set[int] = set()
        self._election_deadline_ms = member.election_deadline_ms()
        self._stop_deadline_ms = None if stop_timeout_ms is None else member.now_ms + stop_timeout_ms
        self._is_stopped = False

    def enter(self) -> Transition | None:
        return self.tick()

    def stop(self, timeout_ms: int) -> Transition | None:
        self._stop_deadline_ms = self.member.now_ms + timeout_ms
        return self.tick()

    def tick(self) -> Transition | None:
        member = self.member
        if self._stop_deadline_ms is not None:
            self._end_stop()
        elif member.now_ms >= self._election_deadline_ms:
            return EnterEpoch(member.epoch + 1)
        for voter in self._uninformed():
            to = member.destination(voter)
            if to is not None and member.peers.can_send(voter.id, member.now_ms):
                member.peers.send(to, end_request(member, self._preferred))
        return None

    def deadline_ms(self) -> int | None:
        if self._is_stopped:
            return None
        peers = self.member.peers
        deadline_ms = self._election_deadline_ms if self._stop_deadline_ms is None else self._stop_deadline_ms
        retries = [peers.ready_ms(voter.id) for voter in self._uninformed() if not peers.is_waiting(voter.id)]
        return min([deadline_ms, *retries])

    def leader_deadline_ms(self) -> int | None:
        return self._election_deadline_ms

    def on_response(self, event: ResponseReceived) -> Transition | None:
        report = leader_report_of(event.response)
        transition = transition_to_leader(self.member, report) if report is not None else None
        if transition is not None:
            return transition
        # A peer that refuses connections has ended, so a node that stops need not tell it.
        is_gone = event.is_refused and self._stop_deadline_ms is not None
        if is_gone or (report is not None and report.is_success):
            self._acknowledged.add(event.to.node_id)
        elif event.response is not None:
            self.member.peers.back_off(event.to.node_id, self.member.now_ms)
        return self.tick()

    def grants_vote(self, vote: RequestedVote) -> bool:
        """Whether a pre-vote is granted: the candidate's log must be at least as long as this node's.

        A vote is never granted, because this node voted for itself in this epoch.
        """
        return vote.is_pre_vote and self.member.is_log_as_long(vote.last_epoch, vote.end_offset)

    def _uninformed(self) -> list[VoterNode]:
        """The voters that have not acknowledged the resignation; empty when this node has stopped."""
        voters = self.member.other_voters()
        return [
            each for each in voters if each.endpoints and each.id not in self._acknowledged and not self._is_stopped
        ]

    def _end_stop(self) -> None:
        member = self.member
        is_late = self._stop_deadline_ms is not None and member.now_ms >= self._stop_deadline_ms
        if not self._is_stopped and (is_late or not self._uninformed()):
            self._is_stopped = True
            member.put(Stopped())
