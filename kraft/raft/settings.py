"""What the Raft machine is told once: the identity of this node, its timeouts and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraft.quorum.voter_set import Address
from protocol.schema import ZERO_UUID


@dataclass(frozen=True, slots=True)
class QuorumIdentity:
    """This node as its peers know it. `endpoints`: its advertised controller listeners, the first of
    controller.listener.names first; empty for a node that is not a controller."""

    node_id: int
    cluster_id: str
    directory_id: bytes = ZERO_UUID
    """Of the metadata directory."""
    endpoints: Mapping[str, Address] = field(default_factory=dict)
    listener: str = "CONTROLLER"
    """The first of controller.listener.names: the name by which peers' endpoints are looked up."""

    @property
    def is_controller(self) -> bool:
        """Only controllers may become voters."""
        return bool(self.endpoints)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Settings controller.quorum.* under Kafka's names and with its defaults; times in milliseconds, sizes in bytes."""

    bootstrap_servers: tuple[Address, ...] = ()
    """Where a node that knows no leader asks for one."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_size_max: int = 1 << 20
    snapshot_fetch_size_max: int = 1 << 20
    """In bytes: of one answer to a Fetch, to a FetchSnapshot."""
    auto_join: bool = False
    """Whether a controller that is not a voter makes itself one (controller.quorum.auto.join.enable)."""
