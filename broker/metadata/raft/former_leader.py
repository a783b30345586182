"""The node that led the metadata quorum before the current term, and when this node last heard from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NO_NODE = -1


class LastContact(NamedTuple):
    """The former leader as a new leader knows it."""

    node_id: int
    heard_ms: int | None
    """When it last answered, on the loop's clock; None where its connection broke since."""


class FormerLeader:
    """A new leader uses it to fence the broker of a leader that failed sooner than by that broker's session.

    A controller that has just begun its term has received no heartbeat yet. What this node heard from the former leader
    as its follower is the only sign of life that it has.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._node_id = NO_NODE
        self._heard_ms: int | None = None

    @property
    def node_id(self) -> int:
        """-1 where no other node has led since this one did."""
        return self._node_id

    def followed(self, node_id: int) -> None:
        """This node follows a leader from now on."""
        self._node_id = node_id
        self.answered()

    def answered(self) -> None:
        """The leader has answered a request of this node."""
        self._heard_ms = self._monotonic_ms()

    def disconnected(self) -> None:
        """The connection to the leader broke, or its address refuses connections."""
        self._heard_ms = None

    def take(self) -> LastContact | None:
        """The former leader, once for each term of this node; None where there is none."""
        if self._node_id == NO_NODE:
            return None
        contact, self._node_id = LastContact(self._node_id, self._heard_ms), NO_NODE
        return contact
