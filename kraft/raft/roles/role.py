"""The events that a role can receive; a role that does not define a reaction ignores the event."""

from __future__ import annotations

from typing import NamedTuple

from kraft.quorum.voter_set import ReplicaKey
from kraft.raft.events import RequestReceived, ResponseReceived
from kraft.raft.member import QuorumMember
from kraft.raft.transitions import Transition


class RequestedVote(NamedTuple):
    """What a candidate asks for, after this node has entered its epoch."""

    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    is_pre_vote: bool


class RaftRole:
    """Reactions return the transition to another role, or None to stay.

    `raft.EVENTS` says which events a role can receive at all.
    """

    __slots__ = ("member",)

    def __init__(self, member: QuorumMember) -> None:
        self.member = member

    def enter(self) -> Transition | None:
        """Called once, after the election state that goes with the role was set."""
        return None

    def leave(self) -> None:
        """Called once, before the next role enters."""

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do; None for never."""
        return None

    def leader_deadline_ms(self) -> int | None:
        """Until when it waits for a leader; None where it does not wait. Entering a later epoch does not extend the
        wait: otherwise a candidate that cannot win could keep this node from an election without end."""
        return None

    def tick(self) -> Transition | None:
        return None

    def saved(self) -> Transition | None:
        """The election state of this role is durable."""
        return None

    def appended(self) -> Transition | None:
        return None

    def truncated(self) -> Transition | None:
        return None

    def flushed(self) -> Transition | None:
        return None

    def snapshot_ended(self) -> Transition | None:
        """The fetched snapshot was loaded or refused."""
        return None

    def response_received(self, event: ResponseReceived) -> Transition | None:
        """A response to a request of this role, or its absence."""
        return None

    def resign(self) -> Transition | None:
        """This node's controller wants another node to lead."""
        return None

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot become this."""
        return "Upgrade kraft version failed because the replica is not the current leader"

    def raise_version(self, version: int) -> None:
        """This node's controller has decided to, after `refusal_of_version` had no objection."""

    def stop(self, timeout_ms: int) -> Transition | None:
        """A clean stop begins."""
        return None

    # Requests that this node receives, in its epoch

    def grants_vote(self, vote: RequestedVote) -> bool:
        """Whether the candidate gets this node's vote, or its pre-vote."""
        return False

    def epoch_ended(self, position: int, count: int) -> None:
        """The leader has resigned; `position`: this node's place among the `count` preferred candidates, 0 for the
        first."""

    def request_received(self, event: RequestReceived) -> Transition | None:
        """A valid request to the leader of this epoch."""
        raise AssertionError("a request to the leader reached a node that does not lead")
