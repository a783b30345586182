"""The former leader of the metadata quorum, and the time of its last response to this node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NO_NODE = -1


class LastContact(NamedTuple):
    """The former leader, with its last response."""

    node_id: int
    heard_ms: int | None
    """The time (ms, the loop's clock) of its last response; None where its connection broke since."""


class FormerLeader:
    """Remembers the former leader, so that a new leader can fence its broker before that broker's session ends.

    A new controller has received no heartbeat yet. The former leader's responses to this node as a follower are the
    only sign that its node is alive.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._node_id = NO_NODE
        self._heard_ms: int | None = None

    @property
    def node_id(self) -> int:
        """The id of the former leader; -1 where no other node has led since this one did."""
        return self._node_id

    def followed(self, node_id: int) -> None:
        """Note that this node follows a leader from now on."""
        self._node_id = node_id
        self.answered()

    def answered(self) -> None:
        """Note the time at which the leader answered a request of this node."""
        self._heard_ms = self._monotonic_ms()

    def disconnected(self) -> None:
        """Note that the connection to the leader broke, or that its address refuses connections."""
        self._heard_ms = None

    def take(self) -> LastContact | None:
        """Return the former leader, once for each term of this node; None where there is none."""
        if self._node_id == NO_NODE:
            return None
        contact, self._node_id = LastContact(self._node_id, self._heard_ms), NO_NODE
        return contact
