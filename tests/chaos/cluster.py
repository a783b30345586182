"""Three nodes as processes of their own, relays between them, and who leads what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from bench.client import Client, Unanswered
from bench.frames import request_frame
from moldau.kraft.features import METADATA_VERSION
from moldau.protocol.compiler import decode
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.chaos.processes import ROOT, Broken, Node
from tests.chaos.proxies import Network

NODES: Final = (1, 2, 3)
PORTS_EACH: Final = 5
"""For clients, for brokers, for controllers; then the relays to the latter two."""
CLUSTER_ID: Final = "bW9sZGF1LWNoYW9zLXRocg"
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""The kinds of keys that have coordinators."""
METADATA_TOPIC: Final = "__cluster_metadata"
SETTINGS: Final = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "offsets.topic.replication.factor=3",
    "offsets.topic.num.partitions=6",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.num.partitions=6",
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
)

T = TypeVar("T")


class Member(Node):
    """One of several nodes."""

    def __init__(self, directory: Path, node_id: int, first_port: int) -> None:
        ports = range(first_port + (node_id - 1) * PORTS_EACH, first_port + node_id * PORTS_EACH)
        super().__init__(directory, ports[0], ports[2])
        self.node_id = node_id
        self.is_paused = False
        self.properties = directory / "node.properties"
        voters = ",".join(f"{each}@127.0.0.1:{first_port + each * PORTS_EACH - 1}" for each in NODES)
        names = ("PLAINTEXT", "REPLICATION", "CONTROLLER")

        def addresses(*where: int) -> str:
            return ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, where, strict=True))

        lines = (
            "process.roles=broker,controller",
            f"node.id={node_id}",
            f"controller.quorum.voters={voters}",
            f"listeners={addresses(ports[0], ports[1], ports[2])}",
            f"advertised.listeners={addresses(ports[0], ports[3], ports[4])}",
            "controller.listener.names=CONTROLLER",
            "inter.broker.listener.name=REPLICATION",
            "listener.security.protocol.map=" + ",".join(f"{name}:PLAINTEXT" for name in names),
            f"log.dirs={self.data}",
            *SETTINGS,
        )
        self.properties.write_text("\n".join(lines) + "\n")
        self.relays = ((ports[3], ports[1]), (ports[4], ports[2]))
        self._command = [sys.executable, "-m", "moldau.broker.cli", "serve", str(self.properties)]

    def format(self, release: str | None = None) -> None:
        command = [sys.executable, "-m", "moldau.broker.cli", "format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        command += ["--release-version", release] if release is not None else []
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"format: {done.stderr[-600:]}")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None and not self.is_paused

    def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def go_on(self) -> None:
        self._running().send_signal(signal.SIGCONT)
        self.is_paused = False

    @property
    def pid(self) -> int:
        return self._running().pid


class Cluster:
    """`start` formats and starts all; `close` leaves nothing running."""

    def __init__(self, directory: Path, first_port: int, release: str | None = None) -> None:
        self.network = Network()
        self._release = release
        self.members = {each: Member(directory / f"node-{each}", each, first_port) for each in NODES}
        self.bootstrap = ",".join(member.bootstrap for member in self.members.values())

    def start(self) -> None:
        for member in self.members.values():
            for port, target in member.relays:
                self.network.relay(port, member.node_id, target)
            member.format(self._release)
        for member in self.members.values():
            member.launch()
        for member in self.members.values():
            member.await_serving()

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        self.network.close()

    # Who is who: asked of any node that runs

    def leader_of(self, topic: str, partition: int) -> int:
        def ask(client: Client) -> int:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            partitions = client.ask(request, MetadataResponse, 9).topics[0].partitions
            return next((each.leader_id for each in partitions if each.partition_index == partition), -1)

        return self._first(ask)

    def controller(self) -> int:
        def ask(client: Client) -> int:
            topics = [TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
            answer = client.ask(DescribeQuorumRequest(topics=topics), DescribeQuorumResponse, 1)
            return answer.topics[0].partitions[0].leader_id if answer.error_code == 0 else -1

        return self._first(ask)

    def coordinator_of(self, key: str, key_type: int = GROUP_KEY) -> int:
        def ask(client: Client) -> int:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            answer = client.ask(request, FindCoordinatorResponse, 3)
            return answer.node_id if answer.error_code == 0 else -1

        return self._first(ask)

    def metadata_version(self) -> int:
        def ask(client: Client) -> int:
            request = ApiVersionsRequest(client_software_name="chaos", client_software_version="1")
            reply = client.exchange(request_frame(request, 4))  # its header is short in every version
            answer = decode(ApiVersionsResponse, memoryview(reply)[8:], 4)
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            return levels.get(METADATA_VERSION, -1)

        return self._first(ask)

    def raise_metadata_version(self, level: int) -> int:
        """As kafka-features does; the error, -1 if nobody answers."""

        def ask(client: Client) -> int:
            update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level)
            return client.ask(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse, 2).error_code

        return self._first(ask)

    def others(self, node_id: int) -> Iterator[int]:
        return (each for each in NODES if each != node_id)

    def _first(self, ask: Callable[[Client], T]) -> T | int:
        for member in self.members.values():
            if not member.is_running:
                continue
            try:
                client = Client(member.port)
                try:
                    return ask(client)
                finally:
                    client.close()
            except (OSError, Unanswered, StopIteration, IndexError):
                continue
        return -1
