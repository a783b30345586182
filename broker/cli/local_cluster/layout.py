"""The layout of a local cluster: the settings and ports of each node, and its data directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

VOTERS_MAX: Final = 3
"""The most nodes that are controllers too; the others are only brokers.

With three voters one may fail. Each further voter makes every decision of the quorum wait for one more disk.
"""
REPLICAS_MAX: Final = 3
PROPERTIES: Final = "server.properties"


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes 1 to `node_count`.

    Their client listeners have consecutive ports from `port` on; the controllers' ports follow.
    """

    directory: str
    node_count: int
    host: str = "127.0.0.1"
    port: int = 9092
    racks: tuple[str, ...] = ()
    """Racks, assigned to the nodes in turn."""
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def node_ids(self) -> range:
        return range(1, self.node_count + 1)

    @property
    def voter_ids(self) -> range:
        """The ids of the voters: an odd number, because one more voter would not tolerate one more failure."""
        return range(1, 1 + (VOTERS_MAX if self.node_count >= VOTERS_MAX else 1))

    @property
    def ports(self) -> range:
        return range(self.port, self.port + self.node_count + len(self.voter_ids))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node_id) for node_id in self.node_ids)

    def port_of(self, node_id: int) -> int:
        return self.port + node_id - 1

    def address(self, node_id: int) -> str:
        return f"{self._host}:{self.port_of(node_id)}"

    def directory_of(self, node_id: int) -> str:
        return f"{self.directory}/node-{node_id}"

    def file_of(self, node_id: int) -> str:
        return f"{self.directory_of(node_id)}/{PROPERTIES}"

    def properties(self, node_id: int) -> dict[str, str]:
        """The properties of one node, in which overrides take precedence."""
        replicas = min(self.node_count, REPLICAS_MAX)
        listeners = [f"PLAINTEXT://{self.address(node_id)}"]
        roles = ["broker"]
        if node_id in self.voter_ids:
            listeners.append(f"CONTROLLER://{self._controller(node_id)}")
            roles.append("controller")
        voters = ",".join(f"{voter_id}@{self._controller(voter_id)}" for voter_id in self.voter_ids)
        properties = {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{self.directory_of(node_id)}/data",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "offsets.topic.replication.factor": str(replicas),
        }
        if self.racks:
            properties["broker.rack"] = self.racks[(node_id - 1) % len(self.racks)]
        return properties | dict(self.overrides)

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def _controller(self, node_id: int) -> str:
        return f"{self._host}:{self.port + self.node_count + node_id - 1}"


def properties_text(properties: Mapping[str, str]) -> str:
    """The properties as the text of a file that `moldau serve` reads."""
    lines = [f"{name}={value}" for name, value in properties.items()]
    return "\n".join(["# Written by `moldau cluster` at each start: use its options.", *lines, ""]).replace(
        "\\", "\\\\"
    )
