"""The interface of a role: a method for each event that a role can receive. By default a role ignores an event."""

from __future__ import annotations

from moldau.kraft.quorum.voter_set import ReplicaKey
from moldau.kraft.raft.events import RequestReceived, ResponseReceived
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.transitions import Transition
from moldau.protocol.late_tuple import NamedTuple


class RequestedVote(NamedTuple):
    """The vote that a candidate requests. This node has entered the candidate's epoch already."""

    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    is_pre_vote: bool


class RaftRole:
    """A role of the Raft machine. Its methods return the transition to another role, or None to keep this role.
    `raft.EVENTS` lists the events that each role can receive."""

    __slots__ = ("member",)

    def __init__(self, member: QuorumMember) -> None:
        self.member = member

    def enter(self) -> Transition | None:
        """Begin the role. It is called once, after the election state of the role was set."""
        return None

    def leave(self) -> None:
        """End the role. It is called once, before the next role begins."""

    def deadline_ms(self) -> int | None:
        """The time (ms) of the role's next deadline, at which `tick` has to be called; None if there is none."""
        return None

    def leader_deadline_ms(self) -> int | None:
        """The time (ms) until which this role waits for a leader; None if it does not wait. A later epoch does not
        extend the wait: otherwise a candidate that cannot win could keep this node from ever holding an election."""
        return None

    def tick(self) -> Transition | None:
        return None

    def on_election_saved(self) -> Transition | None:
        """React to the election state of this role being durable."""
        return None

    def on_log_appended(self) -> Transition | None:
        return None

    def on_log_truncated(self) -> Transition | None:
        return None

    def on_log_flushed(self) -> Transition | None:
        return None

    def on_snapshot_ended(self) -> Transition | None:
        """React to the end of a snapshot fetch: the snapshot was loaded or refused, so that the log can be used
        again."""
        return None

    def on_response(self, event: ResponseReceived) -> Transition | None:
        """React to the outcome of a request that this role sent: a response, a failure or a timeout."""
        return None

    def resign(self) -> Transition | None:
        """Give up the leadership, because this node's controller has failed. Only a leader reacts."""
        return None

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot be changed to `version`; None if it can."""
        return "Upgrade kraft version failed because the replica is not the current leader"

    def raise_version(self, version: int) -> None:
        """Write a higher kraft.version, as this node's controller decided.

        The caller has checked `refusal_of_version`.
        """

    def stop(self, timeout_ms: int) -> Transition | None:
        """Begin a clean stop."""
        return None

    # Requests that this node receives, in its epoch

    def grants_vote(self, vote: RequestedVote) -> bool:
        """Whether this node grants the candidate its vote or pre-vote."""
        return False

    def on_leader_resigned(self, position: int, count: int) -> None:
        """React to the resignation of the leader.

        `position` is the index of this node among the `count` preferred candidates; 0 is the first.
        """

    def on_request(self, event: RequestReceived) -> Transition | None:
        """Handle a valid request to the leader of this epoch. Only the leader's role can receive one."""
        raise AssertionError("a request to the leader reached a node that does not lead")
