"""The layout of a local cluster: the settings, directories and ports of its nodes, and the lock on its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moldau.broker.cli.invocation import CommandError
from moldau.broker.cli.processes.ports import is_free
from moldau.broker.config.sources import internal_topic_settings
from moldau.storage.files.port import FileLock, FileSystem

VOTERS_MAX: Final = 3
"""The most nodes that are controllers. The others are only brokers.

With three voters one may fail. Each further voter makes every decision of the quorum wait for one more disk.
"""
REPLICAS_MAX: Final = 3
PROPERTIES: Final = "server.properties"


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a local cluster, with the ids 1 to `node_count`.

    Consecutive ports from `port` on are used for, in this order: the listeners of the clients, the controllers, the
    consoles, and, if `advertised` is given, the listeners between the brokers.
    """

    directory: str
    node_count: int
    host: str = "127.0.0.1"
    port: int = 9092
    racks: tuple[str, ...] = ()
    """The names of the racks, which are assigned to the nodes round-robin."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    listen: str | None = None
    """The address on which the nodes accept clients; None if it is `host`."""
    advertised: tuple[str, ...] = ()
    """The address of each node for clients, as host:port; empty if it is `host` with the node's own port. If it is
    given, the nodes reach each other by listeners of their own, because only clients may be able to resolve these
    addresses.
    """

    @property
    def node_ids(self) -> range:
        return range(1, self.node_count + 1)

    @property
    def voter_ids(self) -> range:
        """The ids of the voters: of the first three nodes, or of the first one if there are fewer. An even number of
        voters would not tolerate one more failure.
        """
        return range(1, 1 + (VOTERS_MAX if self.node_count >= VOTERS_MAX else 1))

    @property
    def ports(self) -> range:
        lists = 3 if self.advertised else 2
        return range(self.port, self.port + lists * self.node_count + len(self.voter_ids))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.advertised or (self.address(node_id) for node_id in self.node_ids))

    def port_of(self, node_id: int) -> int:
        return self.port + node_id - 1

    def http_port_of(self, node_id: int) -> int:
        """The port on which a node serves its console and metrics."""
        return self.port + self.node_count + len(self.voter_ids) + node_id - 1

    def port_between_brokers(self, node_id: int) -> int:
        """The port on which a node serves the other nodes, if `advertised` is given."""
        return self.http_port_of(self.node_count) + node_id

    @property
    def console(self) -> str:
        """The address of the console of node 1."""
        return f"http://{self._host}:{self.http_port_of(1)}/"

    def address(self, node_id: int) -> str:
        return f"{self._host}:{self.port_of(node_id)}"

    def directory_of(self, node_id: int) -> str:
        return f"{self.directory}/node-{node_id}"

    def file_of(self, node_id: int) -> str:
        return f"{self.directory_of(node_id)}/{PROPERTIES}"

    def properties(self, node_id: int) -> dict[str, str]:
        """The properties of one node, in which overrides take precedence."""
        replicas = min(self.node_count, REPLICAS_MAX)
        listen = _in_url(self.listen or self.host)
        listeners = [f"PLAINTEXT://{listen}:{self.port_of(node_id)}"]
        told = [f"PLAINTEXT://{self.advertised[node_id - 1] if self.advertised else self.address(node_id)}"]
        if self.advertised:
            between = f"BROKER://{self._host}:{self.port_between_brokers(node_id)}"
            listeners.append(between)
            told.append(between)
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
            "inter.broker.listener.name": "BROKER" if self.advertised else "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{self.directory_of(node_id)}/data",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            **internal_topic_settings(replicas),
            "moldau.http.listener": f"http://{self._host}:{self.http_port_of(node_id)}",
            "moldau.console": "true",
        }
        if self.listen or self.advertised:
            properties["advertised.listeners"] = ",".join(told)
        if self.racks:
            properties["broker.rack"] = self.racks[(node_id - 1) % len(self.racks)]
        return properties | dict(self.overrides)

    @property
    def _host(self) -> str:
        return _in_url(self.host)

    def _controller(self, node_id: int) -> str:
        return f"{self._host}:{self.port + self.node_count + node_id - 1}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of a properties file that `moldau serve` reads."""
    lines = [f"{name}={value}" for name, value in properties.items()]
    return "\n".join(["# Written by `moldau cluster` at each start: use its options.", *lines, ""]).replace(
        "\\", "\\\\"
    )


# The claim on a directory and its ports

LOCK: Final = ".lock"


def claim_directory(files: FileSystem, layout: Layout) -> FileLock:
    """Lock the directory of the cluster until the lock is released or this process ends. A second cluster in it would
    assign other ports to the nodes. Raises `CommandError` if another cluster runs there.
    """
    try:
        Path(layout.directory).mkdir(parents=True, exist_ok=True)
        return files.lock(f"{layout.directory}/{LOCK}")
    except BlockingIOError:
        raise CommandError(f"a cluster runs in {layout.directory} already: stop it, or give another --data") from None
    except OSError as problem:
        raise CommandError(f"{layout.directory} cannot be written: {problem.strerror}") from None


def refuse_taken_ports(layout: Layout) -> None:
    taken = [str(port) for port in layout.ports if not is_free(layout.host, port)]
    if taken:
        which = f"port {taken[0]} is" if len(taken) == 1 else f"ports {', '.join(taken)} are"
        last = layout.ports[-1]
        raise CommandError(
            f"{which} taken on {layout.host}, and {layout.port} to {last} are needed: give another --port"
        )
