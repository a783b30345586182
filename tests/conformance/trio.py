"""Three combined nodes of one kind, each a process, on free ports: what Kafka's tools for clusters are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.brokers import CLUSTER_ID, ELIGIBLE_LEADERS_OFF, FEATURES_OFF, MOLDAU, RELEASE, Broker, Ports
from tests.conformance.outcome import Failed, Unavailable
from tests.conformance.toolchain import Missing, Toolchain

NODES = 3
LAST_NODE_S = 30
EXTRA = """\
controller.quorum.voters={voters}
default.replication.factor=3
offsets.topic.replication.factor=3
metadata.log.max.snapshot.interval.ms=2000
"""
NOT_OF_THREE = ("controller.quorum.bootstrap.servers=", "node.id=", "offsets.topic.replication.factor=")


class Node(Broker):
    """One of three. The quorum is static: its voters stand in the properties."""

    def __init__(self, name: str, node_id: int, directory: Path, ports: Sequence[int], java: list[str]) -> None:
        super().__init__(directory / str(node_id), ports[node_id - 1])
        self.name = f"{name} {node_id}"
        self.id = node_id
        self._java = java
        voters = ",".join(f"{index}@127.0.0.1:{port + 1}" for index, port in enumerate(ports, 1))
        kept = [line for line in self.properties.read_text().splitlines() if not line.startswith(NOT_OF_THREE)]
        # A combined node of Apache Kafka tells clients of brokers only of its brokers' listener.
        kept = [line.split(",CONTROLLER")[0] if line.startswith("advertised.") else line for line in kept]
        self.properties.write_text("\n".join([*kept, f"node.id={node_id}", EXTRA.format(voters=voters)]))

    def format_command(self) -> list[str]:
        named = ["-t", CLUSTER_ID, "-c", str(self.properties)]
        if not self._java:
            return [*MOLDAU, "format", *named, "--feature", ELIGIBLE_LEADERS_OFF]
        features = [word for feature in FEATURES_OFF for word in ("--feature", feature)]
        return [*self._java, "kafka.tools.StorageTool", "format", *named, "--release-version", RELEASE, *features]

    def serve_command(self) -> list[str]:
        if not self._java:
            return [*MOLDAU, "serve", str(self.properties)]
        return [*self._java, "kafka.Kafka", str(self.properties)]


def java_of(toolchain: Toolchain) -> list[str]:
    try:
        return [*toolchain.java_command("-Xms256m", "-Xmx512m", "-XX:+UseG1GC")]
    except Missing as missing:
        raise Unavailable(str(missing)) from None


class Trio:
    """Three nodes as one thing to hold clients against, in the order of their ids."""

    node_count = NODES

    def __init__(self, name: str, toolchain: Toolchain, pairs: Sequence[int], directory: Path) -> None:
        """`pairs`: the first port of each node, as `pairs_of` finds them."""
        java = java_of(toolchain) if name == "apache" else []
        self.name = name
        self.nodes = [Node(name, node_id, directory, pairs, java) for node_id in range(1, NODES + 1)]
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(node.data for node in self.nodes)

    def format(self) -> None:
        for node in self.nodes:
            node.format()

    def start(self) -> None:
        """All at once: one alone waits for the others before it serves."""
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(Node.start, self.nodes))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def close(self) -> None:
        """As `stop`; the last node of Apache Kafka's waits for a controller that is gone, and is killed."""
        for node in self.nodes:
            try:
                node.stop(LAST_NODE_S)
            except Failed:
                if self.name != "apache":
                    raise


def pairs_of(ports: Ports) -> list[int]:
    return [ports.pair() for _ in range(NODES)]


@contextmanager
def trio(name: str, toolchain: Toolchain, ports: Ports, directory: Path) -> Iterator[list[Node]]:
    """Three nodes that were formatted and started; they are stopped in the end."""
    three = Trio(name, toolchain, pairs_of(ports), directory)
    three.format()
    try:
        three.start()
        yield three.nodes
    finally:
        three.stop()
