"""Three combined nodes of one kind, each a process, on free ports: what Kafka's tools for clusters are held against."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.brokers import (
    CLUSTER_ID,
    MOLDAU,
    RELEASE,
    TRANSACTION_VERSION,
    Broker,
    Ports,
    format_features,
)
from tests.conformance.outcome import Failed, Unavailable
from tests.conformance.toolchain import Missing, Toolchain

NODES = 3
LAST_NODE_S = 30
EXTRA = """\
{quorum}
default.replication.factor=3
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
metadata.log.max.snapshot.interval.ms=2000
"""
NOT_OF_THREE = (
    "controller.quorum.bootstrap.servers=",
    "node.id=",
    "offsets.topic.replication.factor=",
    "transaction.state.log.replication.",
)


class Node(Broker):
    """One of three. The quorum is static, its voters stand in the properties; or dynamic, and they are formatted.

    In a dynamic quorum the first three of `ports` are the voters', a further node is to be made a voter later.
    """

    def __init__(
        self,
        name: str,
        node_id: int,
        directory: Path,
        ports: Sequence[int],
        java: list[str],
        *,
        dynamic: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        super().__init__(directory / str(node_id), ports[node_id - 1])
        self.name = f"{name} {node_id}"
        self.id = node_id
        self._java = java
        voters = [f"{index}@127.0.0.1:{port + 1}" for index, port in enumerate(ports[:NODES], 1)]
        self._voters: list[str] = []
        quorum = f"controller.quorum.voters={','.join(voters)}"
        if dynamic:
            self._voters = [f"{voter}:{directory_id(index)}" for index, voter in enumerate(voters, 1)]
            quorum = f"controller.quorum.bootstrap.servers={','.join(voter.partition('@')[2] for voter in voters)}"
        replaced = (*NOT_OF_THREE, *(line.partition("=")[0] + "=" for line in extra))
        kept = [line for line in self.properties.read_text().splitlines() if not line.startswith(replaced)]
        # A combined node of Apache Kafka tells clients of brokers only of its brokers' listener.
        kept = [line.split(",CONTROLLER")[0] if line.startswith("advertised.") else line for line in kept]
        self.properties.write_text("\n".join([*kept, *extra, f"node.id={node_id}", EXTRA.format(quorum=quorum)]))

    def format_command(self) -> list[str]:
        named = ["-t", CLUSTER_ID, "-c", str(self.properties), *self._quorum_words()]
        program = [*self._java, "kafka.tools.StorageTool"] if self._java else MOLDAU
        features = format_features(self.transaction_version)
        return [*program, "format", *named, "--release-version", self.release, *features]

    def _quorum_words(self) -> list[str]:
        if not self._voters:
            return []
        return ["--initial-controllers", ",".join(self._voters)] if self.id <= NODES else ["--no-initial-controllers"]

    def serve_command(self) -> list[str]:
        if not self._java:
            return [*MOLDAU, "serve", str(self.properties)]
        return [*self._java, "kafka.Kafka", str(self.properties)]


def directory_id(node_id: int) -> str:
    return urlsafe_b64encode(bytes([0x40 + node_id]) * 16).decode().rstrip("=")


def java_of(toolchain: Toolchain) -> list[str]:
    try:
        return [*toolchain.server_command("-Xms256m", "-Xmx512m", "-XX:+UseG1GC")]
    except Missing as missing:
        raise Unavailable(str(missing)) from None


class Trio:
    """Three nodes as one thing to hold clients against, in the order of their ids."""

    node_count = NODES
    transaction_version = TRANSACTION_VERSION
    release = RELEASE
    """The metadata version that it is formatted with."""

    def __init__(
        self,
        name: str,
        toolchain: Toolchain,
        pairs: Sequence[int],
        directory: Path,
        *,
        dynamic: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        """`pairs`: the first port of each node, as `pairs_of` finds them. `extra`: properties of every node."""
        java = java_of(toolchain) if name == "apache" else []
        self.name = name
        self.every = [
            Node(name, node_id, directory, pairs, java, dynamic=dynamic, extra=extra)
            for node_id in range(1, len(pairs) + 1)
        ]
        """With those that nobody has formatted yet."""
        self.nodes = self.every[:NODES]
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(node.data for node in self.nodes)

    def format(self) -> None:
        for node in self.nodes:
            node.transaction_version = self.transaction_version
            node.release = self.release
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
        for node in self.every:
            try:
                node.stop(LAST_NODE_S)
            except Failed:
                if self.name != "apache":
                    raise


def pairs_of(ports: Ports, count: int = NODES) -> list[int]:
    return [ports.pair() for _ in range(count)]


@contextmanager
def trio(
    name: str, toolchain: Toolchain, ports: Ports, directory: Path, *, dynamic: bool = False
) -> Iterator[list[Node]]:
    """Three nodes that were formatted and started; they are stopped in the end. With a dynamic quorum there is a fourth
    that nobody has formatted yet."""
    three = Trio(name, toolchain, pairs_of(ports, NODES + dynamic), directory, dynamic=dynamic)
    three.format()
    try:
        three.start()
        yield three.every
    finally:
        three.close()
