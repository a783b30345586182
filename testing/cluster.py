"""`Cluster`: nodes as processes of a test, with conveniences for topics, records and offsets."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from moldau.testing.captures import settings_to_serve, unpack_capture
from moldau.testing.clients.installed import client, library
from moldau.testing.clients.port import Client
from moldau.testing.conveniences import Conveniences
from moldau.testing.lifeline import Lifeline
from moldau.testing.node import START_S, Node, NodeFailed
from moldau.testing.ports import HOST
from moldau.testing.settings import REPLICAS_MAX, client_settings, node_settings, ports_of, texts_of, users_of

if TYPE_CHECKING:
    from moldau.testing.faults import Clock, Faults
    from moldau.testing.security import Security

KEEP: Final = "MOLDAU_KEEP"
"""The environment variable which, if it is 1, makes clusters keep their data and logs."""
STARTS_MAX: Final = 5
"""The maximum number of attempts to start a cluster, each with other ports, because another process may take a port
meanwhile.
"""


class Cluster(Conveniences):
    """A cluster on this machine that ends with the `with` block, and in any case with the process of the test.

    A single node keeps everything in memory. Several nodes have temporary directories, so that a node that was killed
    finds its logs again. Conveniences use the Kafka client that is installed, and raise its exceptions.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        secure: bool = False,
        users: Sequence[str] | None = None,
        control: bool = False,
        max_version: str | None = None,
        memory: bool | None = None,
        keep: bool | None = None,
        client: str | None = None,
        capture: Path | str | None = None,
    ) -> None:
        """Describe the cluster; a `with` block or `start` starts it.

        `nodes`: the number of nodes.
        `port`: the port of node 1; the other nodes have the following ports. If it is None, free ports are chosen.
        `settings`: settings of every node, under Kafka's names.
        `secure`: whether clients log in by SCRAM under TLS, and ACLs are in force.
        `users`: the users of a secure cluster besides `admin`, which may do everything; by default alice and bob.
        `control`: whether the nodes take faults and a moved clock (`faults`, `clock`); each request then takes longer.
        `max_version`: the release of Apache Kafka whose API versions and features a single node offers, such as "2.8".
        `memory`: whether a single node keeps everything in memory; by default it does.
        `keep`: whether data and logs stay when the cluster ends; by default if the variable `MOLDAU_KEEP` is 1.
        `client`: the client library for the conveniences, by its name for pip; by default one that is installed.
        `capture`: a file of `moldau capture`, with whose topics and committed offsets a single node begins.
        """
        if not isinstance(nodes, int) or nodes < 1:
            raise ValueError(f"nodes is {nodes!r}: a cluster has at least one node")
        if max_version is not None and nodes > 1:
            raise ValueError("max_version is for one node: the nodes of a cluster need newer versions among themselves")
        self._keep = os.environ.get(KEEP, "0") not in ("", "0") if keep is None else keep
        self._in_memory = (nodes == 1 and not self._keep and capture is None) if memory is None else memory
        if capture is not None and (nodes > 1 or secure or memory):
            raise ValueError("a capture is served by one node with data on disk, and has no users: leave these out")
        self._capture = None if capture is None else Path(capture)
        if self._in_memory and nodes > 1:
            raise ValueError(
                "several nodes in memory are not possible: one that restarts would have forgotten its votes"
            )
        self._node_count = nodes
        self._port = port
        emulated = {} if max_version is None else {"moldau.emulated.release": max_version}
        self._settings = texts_of(settings or {}) | emulated
        self._users = users_of(users, secure=secure)
        self._security: Security | None = None
        self._has_control = control
        self._client_name = client
        self._client: Client | None = None
        self._lifeline: Lifeline | None = None
        self._clock: Clock | None = None
        self._addresses: list[str] = []
        self.directory: Path | None = None
        """The directory of data and logs; None for a node in memory."""
        self.nodes: list[Node] = []

    @classmethod
    def from_capture(cls, path: Path | str, **arguments: Any) -> Cluster:
        """A cluster of one node with the contents of a file of `moldau capture`: topics with their offsets and
        timestamps, and groups with their committed offsets at the beginning of the captured window. The arguments are
        those of `Cluster`.
        """
        return cls(capture=path, **arguments)

    # The life of the cluster

    def start(self) -> Cluster:
        """Start the nodes, and wait until they serve. Raises `NodeFailed`, and ValueError for a setting that no node
        knows.
        """
        if self._lifeline is not None:
            raise RuntimeError("the cluster runs already")
        if sys.platform == "win32":
            raise NodeFailed("Moldau does not run on Windows: run the tests in a container, or in WSL")
        for attempt in range(1, STARTS_MAX + 1):
            try:
                self._start_nodes()
                self._refuse_unknown_settings()
                return self
            except NodeFailed as failure:
                self.stop()
                if not failure.is_port_taken or self._port is not None or attempt == STARTS_MAX:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError("the last start returns or raises")

    def stop(self) -> None:
        """End the nodes, and remove their files unless they are to be kept. It may be called several times, also for a
        cluster that was not started.
        """
        client, self._client = self._client, None
        try:
            if client is not None:
                client.close()
        finally:
            self._stop_nodes()

    def _stop_nodes(self) -> None:
        if self._keep:
            self._stop_cleanly()
        for node in self.nodes:
            node.close()
        self.nodes = []
        lifeline, self._lifeline = self._lifeline, None
        if self.directory is not None and lifeline is not None:
            if self._keep:
                print(f"moldau: data and logs of the cluster are kept in {self.directory}", file=sys.stderr)  # noqa: T201
            else:
                shutil.rmtree(self.directory, ignore_errors=True)
            lifeline.forget_directory(self.directory)
            self.directory = None
        if lifeline is not None:
            lifeline.close()

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for the setting `bootstrap.servers` of a client, in the order of the nodes'
        ids.
        """
        return ",".join(self._addresses)

    def node(self, node_id: int) -> Node:
        """The node with this id; the ids begin with 1."""
        if not 1 <= node_id <= len(self.nodes):
            raise ValueError(f"there is no node {node_id}: the ids are 1 to {len(self.nodes)}")
        return self.nodes[node_id - 1]

    @property
    def faults(self) -> Faults:
        """Faults on demand in the nodes. The cluster must have been made with `control=True`."""
        from moldau.testing.faults import Faults

        return Faults(lambda: self.nodes)

    @property
    def clock(self) -> Clock:
        """The clock of the nodes, which can be moved. The cluster must have been made with `control=True`."""
        from moldau.testing.faults import Clock

        if self._clock is None:
            self._clock = Clock(lambda: self.nodes)
        return self._clock

    @property
    def is_as_started(self) -> bool:
        """Whether all nodes run, with a clock that was not moved."""
        return all(node.is_running for node in self.nodes) and not (self._clock is not None and self._clock.is_moved)

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Make the replica on node `to` the leader of a partition, and wait until it leads. Raises `FaultRefused`."""
        from moldau.testing.faults import move_leader

        move_leader(self.nodes, to, {"topic": topic, "partition": partition})

    def move_coordinator(self, *, to: int, group: str | None = None, transactional_id: str | None = None) -> None:
        """Make node `to` the coordinator of a group or of a transactional id. Raises `FaultRefused`."""
        from moldau.testing.faults import move_leader

        given = {"group": group, "transactional_id": transactional_id}
        move_leader(self.nodes, to, {name: value for name, value in given.items() if value is not None})

    def client_settings(self, library: str, user: str | None = None) -> dict[str, Any]:
        """The settings with which a client of a library connects, under the library's own names: `confluent-kafka`,
        `aiokafka`, `kafka-python` or `java`. In a secure cluster it logs in as `user`, by default as `admin`.
        """
        return client_settings(library, self.bootstrap_servers, self._security, user)

    @property
    def users(self) -> tuple[str, ...] | None:
        """The users of a secure cluster besides `admin`; None if the cluster is not secure."""
        return self._users

    @property
    def client(self) -> Client:
        """The client through which conveniences work. Raises `NoClient` if no client library is installed."""
        if self._client is None:
            if self._lifeline is None:
                raise RuntimeError("the cluster does not run: use it in a with block, or call start()")
            chosen = library(self._client_name)
            self._client = client(chosen, self.client_settings(chosen.name))
        return self._client

    @property
    def replicas(self) -> int:
        """The default number of replicas of a topic: three, or the number of nodes if that is less."""
        return min(self._node_count, REPLICAS_MAX)

    def _start_nodes(self) -> None:
        self._lifeline = lifeline = Lifeline()
        if not self._in_memory:
            self.directory = Path(tempfile.gettempdir(), f"moldau-testing-{secrets.token_hex(6)}")
            if not self._keep:
                lifeline.watch_directory(self.directory)
            self.directory.mkdir(mode=0o700)
        ports = ports_of(self._node_count, self._port)
        cluster_id = urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")
        self._addresses = [f"{HOST}:{each.clients}" for each in ports]
        self._security = self._new_security()
        for node_id in range(1, self._node_count + 1):
            words = self._data_of(node_id, cluster_id)
            variables = {}
            if self._security is not None:
                variables = self._security.node_variables()
            words += ["--control", f"{HOST}:0"] if self._has_control else []
            log_file = None if self.directory is None else self.directory / f"node-{node_id}.log"
            settings = node_settings(node_id, ports, self._security) | self._settings
            if self._capture is not None:
                settings = settings_to_serve(settings, f"{HOST}:{ports[0].controller}")
            self.nodes.append(Node(node_id, settings, words, variables, lifeline, log_file))
        for node in self.nodes:
            node.begin()
        deadline = time.monotonic() + START_S
        for node in self.nodes:
            node.wait_until_serving(deadline)

    def _data_of(self, node_id: int, cluster_id: str) -> list[str]:
        """The arguments of `moldau serve` that determine the data of a node. Raises `NodeFailed` for a file that is not
        a capture.
        """
        if self.directory is None:
            return ["--memory", "--cluster-id", cluster_id]
        if self._capture is not None:
            return ["--data", str(unpack_capture(self._capture, self.directory))]
        return ["--data", str(self.directory / f"node-{node_id}"), "--cluster-id", cluster_id]

    def _refuse_unknown_settings(self) -> None:
        warnings = self.nodes[0].greeting["warnings"]
        own = [each for each in warnings if each.partition(" ")[0] in self._settings]
        if own:
            raise ValueError(f"settings of the cluster: {' '.join(own)}")

    def _new_security(self) -> Security | None:
        if self._users is None:
            return None
        from moldau.testing.security import Security

        return Security(self._users, HOST)

    def _stop_cleanly(self) -> None:
        """Stop all nodes cleanly and at the same time, so that the data that is kept needs no recovery."""
        from concurrent.futures import ThreadPoolExecutor

        running = [node for node in self.nodes if node.is_running]
        with ThreadPoolExecutor(self._node_count) as pool:
            for stopping in [pool.submit(node.stop) for node in running]:
                try:
                    stopping.result()
                except NodeFailed as failure:
                    print(f"moldau: {failure}", file=sys.stderr)  # noqa: T201
