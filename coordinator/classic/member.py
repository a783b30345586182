"""A member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.runtime.effects import Waiter
from protocol.messages.join_group import JoinGroupRequestProtocol

NO_ASSIGNMENT = b""


@dataclass(slots=True)
class Member:
    """What a member said of itself, what it was given, and the replies it waits for.

    Protocols are in the order of the member's preference; their metadata and the assignment are the clients' own bytes.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """Has not been told its id yet: it can die while its join is parked."""
    joining: Waiter | None = None
    """The parked join."""
    syncing: Waiter | None = None
    """The parked sync."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_kept_by_a_parked_request(self) -> bool:
        """Members that wait for a rebalance need no heartbeats, unless nobody knows whether they are still there."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata_of(self, protocol_name: str | None) -> bytes:
        """What the member says under a protocol that it supports."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member likes best."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def says_again(self, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Whether a join brings nothing new."""
        return self.protocols == protocols
