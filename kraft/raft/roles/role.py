"""What every role answers to; a role that says nothing of an event has nothing to do with it."""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.events import RequestReceived, ResponseReceived
from kraft.raft.member import QuorumMember
from kraft.raft.roles.transitions import Transition
from kraft.raft.voters.voters import ReplicaKey


class RequestedVote(NamedTuple):
    """What a candidate asks: its epoch is the voter's."""

    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    is_pre_vote: bool


class RaftRole:
    """Reactions return the turn to another role, or None to stay.

    `raft.EVENTS` says which events a role can meet at all.
    """

    __slots__ = ("member",)

    def __init__(self, member: QuorumMember) -> None:
        self.member = member

    def enter(self) -> Transition | None:
        """Once, after the election that goes with the role was set."""
        return None

    def leave(self) -> None:
        """Once, before the next role enters."""

    def deadline_ms(self) -> int | None:
        """When a tick has something to do."""
        return None

    def leader_deadline_ms(self) -> int | None:
        """Until when it waits for a leader; a new epoch is no reason to begin anew. None where it does not wait."""
        return None

    def tick(self) -> Transition | None:
        return None

    def saved(self) -> Transition | None:
        """What was to be durable is."""
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
        """An answer to a request of this role."""
        return None

    def resign(self) -> Transition | None:
        """By the wish of this node's controller."""
        return None

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot become this."""
        return "Upgrade kraft version failed because the replica is not the current leader"

    def raise_version(self, version: int) -> None:
        """By the wish of this node's controller, which has asked whether it can be."""

    def stop(self, timeout_ms: int) -> Transition | None:
        """A clean stop begins."""
        return None

    # Requests of others, in this node's epoch

    def grants_vote(self, vote: RequestedVote) -> bool:
        return False

    def epoch_ended(self, position: int, count: int) -> None:
        """The leader that it follows has resigned; this node is at this position of those that should stand."""

    def request_received(self, event: RequestReceived) -> Transition | None:
        """A valid request to the leader of this epoch."""
        raise AssertionError("only a leader is asked")
