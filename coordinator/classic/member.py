"""A member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.coordinator.runtime.effects import Waiter
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol

NO_ASSIGNMENT = b""


@dataclass(slots=True)
class Member:
    """A member of a classic group, with its assignment and its parked requests. Protocols are in the order of the
    member's preference; their metadata and the assignment are the clients' own bytes.
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
    """Whether the member has not received its id yet.

    It cannot send heartbeats, so its session runs while its join is parked.
    """
    joining: Waiter | None = None
    """The waiter of the parked join."""
    syncing: Waiter | None = None
    """The waiter of the parked sync."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_kept_by_a_parked_request(self) -> bool:
        """Whether a parked request keeps the member in the group without heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata_of(self, protocol_name: str | None) -> bytes:
        """The metadata of the member for a protocol; empty where it does not support the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's protocols that is among the candidates."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def has_same_protocols(self, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Whether a join has the same protocols as the member's last one."""
        return self.protocols == protocols
