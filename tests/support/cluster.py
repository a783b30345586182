"""Several whole brokers on simulated hosts, one cluster: `with Cluster(seed, nodes=3) as cluster: cluster.live(story)`.

Every node is controller and broker. Its directory survives what happens to its host; `crash`, `kill` and `stop` end a
life, `boot` begins the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from moldau.broker.config.config import Config
from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.registration import RegistrationRefused
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.node.node import Node
from moldau.broker.runtime.place import MachineProcesses
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records.metadata import UserScramCredentialRecord
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.storage.log.recovery import CorruptLog
from moldau.testing.simulation.world import Host, SimulatedEnvironment, World
from tests.support.node import CONTROLLER_PORT, PORT, PROPERTIES, Client, Closed

CLUSTER_ID: Final = "simulated-cluster-0000"
PATIENCE_S: Final = 600
PAUSE_S: Final = 0.05
LOGIN_LISTENER: Final = "LOGIN"
LOGIN_PORT: Final = 9094


def host_name(node_id: int) -> str:
    return f"broker-{node_id}"


def role_properties(node_id: int, is_controller: bool) -> dict[str, str]:
    """The properties of a node with one role only."""
    if is_controller:
        listener = f"CONTROLLER://{host_name(node_id)}:{CONTROLLER_PORT}"
        return {"process.roles": "controller", "listeners": listener, "advertised.listeners": listener}
    return {"process.roles": "broker", "listeners": f"PLAINTEXT://:{PORT}"}


def login_properties(given: Mapping[str, str], node_id: int) -> dict[str, str]:
    """The properties of a broker with one more listener, at which clients log in by SCRAM."""
    return {
        "listeners": f"{given['listeners']},{LOGIN_LISTENER}://:{LOGIN_PORT}",
        "advertised.listeners": f"{given['advertised.listeners']},{LOGIN_LISTENER}://{host_name(node_id)}:{LOGIN_PORT}",
        "listener.security.protocol.map": f"{given['listener.security.protocol.map']},{LOGIN_LISTENER}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }


class Formatting(NamedTuple):
    """What a new node is formatted with."""

    features: Mapping[str, int]
    voters: VoterSet | None = None
    """The first voters of a quorum whose log names them; None if the configuration names them."""
    credentials: tuple[UserScramCredentialRecord, ...] = ()
    """Of users that can log in from the first start on."""


def directory_id(node_id: int) -> bytes:
    """The directory id of a first voter, or of a voter that is added later."""
    return f"directory-{node_id:06}".encode()


def voter_of(node_id: int) -> VoterNode:
    return VoterNode(node_id, directory_id(node_id), (("CONTROLLER", (host_name(node_id), CONTROLLER_PORT)),))


class ClusterNode:
    """One node: its host, and its broker while it lives."""

    def __init__(self, world: World, node_id: int, properties: dict[str, str], formatting: Formatting) -> None:
        self.id = node_id
        self.formatting = formatting
        self.host: Host = world.add_host(host_name(node_id))
        self.properties = properties
        self.broker: Node | None = None
        self.place: MachineProcesses | None = None
        """With heirs: the broker leaves the cluster in its next life."""
        self.exit_status = 0
        """That of the last process that ended by itself, or was stopped."""
        self._stop: asyncio.Event | None = None

    @property
    def is_up(self) -> bool:
        return self.host.is_up

    def boot(self) -> None:
        self.host.boot(self._serve)

    def crash(self) -> None:
        """A power cut."""
        self.broker = None
        self.host.crash()

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        self.broker = None
        self.host.kill()

    def stop(self) -> None:
        """SIGTERM: a clean stop; the host is switched off when the process has ended."""
        if self._stop is not None:
            self._stop.set()

    async def _serve(self, environment: SimulatedEnvironment) -> None:
        config = checked_config(self.properties)
        self._stop = asyncio.Event()
        try:
            self._format(config, environment)
            broker = self.broker = Node(config, environment, asyncio.get_running_loop(), place=self.place)
            await broker.start()
        except (OSError, RegistrationRefused, CorruptLog) as refusal:
            if not self.host.may_halt:
                raise
            self.host.world.event("exit", type(refusal).__name__)  # As `moldau serve` does: log the reason, and end.
            return
        if broker.departure is not None:
            broker.tasks.spawn(broker.departure.run(self._stop.set))
        await self._stop.wait()
        await broker.stop()
        self.exit_status = 0 if broker.departure is None else broker.departure.exit_status
        self.broker = None

    def _format(self, config: Config, environment: SimulatedEnvironment) -> None:
        """Format the directories, if that was not done before."""
        if read_meta_properties(environment.fs, config.log_dirs[0]) is None:
            format_directories(
                environment.fs,
                config,
                cluster_id=CLUSTER_ID,
                features=self.formatting.features,
                ignore_formatted=True,
                standalone=False,
                entropy=environment.entropy,
                now_ms=environment.wall_ms(),
                initial_voters=self.formatting.voters,
                credentials=self.formatting.credentials,
            )


class Cluster:
    """Nodes 1 to n, and a driver that runs the story."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        controllers: int = 0,
        voters: int = 0,
        features: Mapping[str, int] | None = None,
        credentials: tuple[UserScramCredentialRecord, ...] = (),
        has_logins: bool = False,
        keep_trace: bool = False,
        **properties: object,
    ) -> None:
        """`controllers`: so many of the first nodes are controllers only, the others brokers only; 0: all are both.
        `voters`: so many of the first nodes vote at first, and the log names them; 0: the configuration does.
        `has_logins`: brokers have one more listener, at which clients log in.
        """
        self.world = World(seed, keep_trace=keep_trace)
        given = {name.replace("_", "."): str(value) for name, value in properties.items()}
        ids = range(1, nodes + 1)
        voter_ids = ids[: controllers or nodes]
        quorum = {
            "controller.quorum.voters": ",".join(f"{each}@{host_name(each)}:{CONTROLLER_PORT}" for each in voter_ids)
        }
        formatting = Formatting(features or {}, credentials=credentials)
        if voters:
            servers = ",".join(f"{host_name(each)}:{CONTROLLER_PORT}" for each in ids)
            quorum = {"controller.quorum.bootstrap.servers": servers}
            formatting = formatting._replace(voters=VoterSet.from_voters(map(voter_of, ids[:voters])))
        self.nodes = {
            node_id: ClusterNode(
                self.world,
                node_id,
                {name: value for name, value in PROPERTIES.items() if name != "controller.quorum.bootstrap.servers"}
                | {
                    "node.id": str(node_id),
                    "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://{host_name(node_id)}:{CONTROLLER_PORT}",
                    **quorum,
                    "advertised.listeners": f"PLAINTEXT://{host_name(node_id)}:{PORT}",
                    "offsets.topic.replication.factor": str(min(nodes - controllers, 3)),
                }
                | (role_properties(node_id, node_id in voter_ids) if controllers else {})
                | given,
                formatting,
            )
            for node_id in ids
        }
        for node in self.nodes.values():
            if has_logins and "broker" in node.properties["process.roles"]:
                node.properties |= login_properties(node.properties, node.id)

    def __enter__(self) -> Self:
        self.world.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.__exit__(kind, error, trace)

    def live(self, story: Callable[[Cluster], Awaitable[None]], *, limit_s: float = PATIENCE_S) -> None:
        """Boot all nodes and live through the story."""
        for node in self.nodes.values():
            node.boot()

        async def run() -> None:
            await story(self)

        self.world.run(run(), limit_s=limit_s)

    # Queries of stories

    def leader_of_quorum(self) -> ClusterNode | None:
        """The node that leads the newest epoch, as the nodes themselves see it."""
        leading = [
            node
            for node in self.nodes.values()
            if node.broker is not None and node.is_up and node.broker.quorum.active_controller is not None
        ]
        return max(leading, key=lambda node: node.broker.quorum.leader_epoch if node.broker else -1, default=None)

    async def until(self, holds: Callable[[], bool], what: str, limit_s: float = 60) -> None:
        """Wait in virtual time until a condition holds."""
        for _ in range(int(limit_s / PAUSE_S)):
            if holds():
                return
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{what}: not within {limit_s} s")

    async def settled(self) -> None:
        """Every node that is up serves, and the controller has fenced none of them."""

        def holds() -> bool:
            up = [node for node in self.nodes.values() if node.is_up]
            return all(node.broker is not None and not node.broker.readiness.not_ready() for node in up)

        await self.until(holds, "all nodes serve")

    async def connect(self, node_id: int, port: int | None = None) -> Client:
        """Connect to a node, at its listener for clients. Raises OSError or TimeoutError if no process listens."""
        is_broker = "broker" in self.nodes[node_id].properties["process.roles"]
        port = port or (PORT if is_broker else CONTROLLER_PORT)
        connecting = asyncio.open_connection(host_name(node_id), port, limit=1 << 24)
        reader, writer = await asyncio.wait_for(connecting, 2)
        client, host = Client(reader, writer, "test"), self.nodes[node_id].host
        life = host.life
        client.is_peer_alive = lambda: host.life is life
        return client

    async def ask_any(self, request: object, version: int, limit_s: float = 60) -> Any:
        """The response of the first node that gives one."""
        brokers = [node.id for node in self.nodes.values() if "broker" in node.properties["process.roles"]]
        for attempt in range(int(limit_s / PAUSE_S)):
            node_id = brokers[attempt % len(brokers)]
            try:
                client = await self.connect(node_id)
                try:
                    return await asyncio.wait_for(client.ask(request, version), 10)
                finally:
                    client.close()
            except (OSError, Closed, TimeoutError):
                await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"nobody answers {request}")

    async def create(self, name: str, partitions: int = 1, replication_factor: int = 3, **configs: object) -> None:
        """Create a topic, and wait until it has leaders."""
        values = [CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=values
        )
        while True:
            reply = await self.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
            error = ErrorCode(reply.topics[0].error_code)
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(PAUSE_S)

    async def leader(self, topic: str, index: int = 0) -> int:
        """The id of the node that leads a partition, by the metadata of any node; -1 for none."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        reply = await self.ask_any(request, 9)
        partitions = {each.partition_index: each.leader_id for each in reply.topics[0].partitions}
        leader_id: int = partitions.get(index, -1)
        return leader_id

    async def led(self, topic: str, index: int = 0) -> int:
        """The node that leads a partition, once a node reports it."""
        while (leader_id := await self.leader(topic, index)) < 0:
            await asyncio.sleep(PAUSE_S)
        return leader_id
