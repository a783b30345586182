"""The fixed input of the Raft machine: the identity of this node, its timeouts and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from moldau.kraft.quorum.voter_set import Address
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.schema import ZERO_UUID


@dataclass(frozen=True, slots=True)
class QuorumIdentity:
    """The identity of this node, as its peers see it.

    `endpoints` has its advertised controller listeners, in the order of controller.listener.names; it is empty for a
    node that is not a controller.
    """

    node_id: int
    cluster_id: str
    directory_id: bytes = ZERO_UUID
    """The id of the metadata directory."""
    endpoints: Mapping[str, Address] = field(default_factory=dict)
    listener: str = "CONTROLLER"
    """The first name in controller.listener.names. The addresses of peers are looked up under this name."""

    @property
    def is_controller(self) -> bool:
        """Whether this node is a controller. Only controllers may become voters."""
        return bool(self.endpoints)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The settings controller.quorum.* with Kafka's names and defaults. Times are in milliseconds, sizes in bytes."""

    bootstrap_servers: tuple[Address, ...] = ()
    """The servers that a node which knows no leader asks for the leader."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_size_max: int = 1 << 20
    snapshot_fetch_size_max: int = 1 << 20
    """The most bytes in one response to a FetchSnapshot. `fetch_size_max` limits the response to a Fetch."""
    auto_join: bool = False
    """Whether a controller that is not a voter adds itself to the voters (controller.quorum.auto.join.enable)."""
