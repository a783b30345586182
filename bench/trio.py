"""Clusters of three nodes, of this checkout or of Apache Kafka, and the resources that the nodes use together."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from bench.client import Client, Unanswered, connect_with_retries
from bench.processes import CpuTime, cpu_time, memory
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.conformance.brokers import CLUSTER_ID, MOLDAU
from tests.conformance.toolchain import Toolchain

T = TypeVar("T")

NODES: Final = (1, 2, 3)
PATIENCE_S: Final = 60.0
SAMPLE_S: Final = 0.1
LAST_LINES: Final = 6
LINE_LENGTH_MAX: Final = 300
SERIOUS_LOG_LINE: Final = ("ERROR", "FATAL", "CRITICAL", "Exception")
PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
default.replication.factor=3
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=1000
"""


class ClusterNode:
    """A node of the cluster. Its settings are the defaults, apart from those of the cluster and the
    lines of `extra`.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        node_id: int,
        ports: dict[int, int],
        java: Toolchain | None,
        extra: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True)
        self.name = name
        self.directory = directory
        self.data = directory / "data"
        self.port = ports[node_id]
        self._java = java
        self._properties = directory / "node.properties"
        text = PROPERTIES.format(
            node_id=node_id,
            voters=",".join(f"{each}@127.0.0.1:{port + 1}" for each, port in ports.items()),
            port=self.port,
            controller_port=self.port + 1,
            data=self.data,
        )
        self._properties.write_text(text + "".join(f"{line}\n" for line in extra))

    def format(self) -> None:
        if self._java is None:
            command = [*MOLDAU, "format", "-t", CLUSTER_ID, "-c", str(self._properties)]
        else:
            words = ("kafka.tools.StorageTool", "format", "-g", "-t", CLUSTER_ID, "-c", str(self._properties))
            command = [*self._java.java_command(), *words]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def serve_command(self) -> list[str]:
        if self._java is None:
            return [str(Path(sys.executable).with_name("moldau")), "serve", str(self._properties)]
        return [*self._java.java_command("-Xms1g", "-Xmx1g", "-XX:+UseG1GC"), "kafka.Kafka", str(self._properties)]


class ClusterUsage(NamedTuple):
    """The resources that three processes used together."""

    cpu: CpuTime
    resident_mb_max: float


class ThreeNodeCluster:
    """A cluster of three nodes, which a `with` block starts and ends."""

    def __init__(self, bench: Bench, name: str, extra: Sequence[str] = ()) -> None:
        java = bench.toolchain if name != "moldau" else None
        ports = {node_id: bench.free_pair() for node_id in NODES}
        directory = bench.directory / f"{name}-three-{ports[1]}"
        self.name = name
        self.directory = directory
        self.servers = {each: ClusterNode(name, directory / str(each), each, ports, java, extra) for each in NODES}
        self.running: dict[int, RunningBroker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> ThreeNodeCluster:
        for server in self.servers.values():
            server.format()
            self._stack.callback(remove_server, server)
        self._stack.callback(self._stop)
        for node_id in NODES:
            self.start(node_id)
        for running in self.running.values():
            running.connect().close()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            print(
                f"  {self.name}: {'; '.join(self.unexpected_exits()) or 'all three run'}. Their last lines:", flush=True
            )
            print(self.last_lines(), flush=True)
        self._stack.close()

    def start(self, node_id: int) -> None:
        self.running[node_id] = RunningBroker(self.servers[node_id])

    def _stop(self) -> None:
        """Stop all nodes at the same time, because the last one alone has no quorum."""
        threads = [threading.Thread(target=running.stop) for running in self.running.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def client(self, node_id: int = 1) -> Client:
        return connect_with_retries(self.servers[node_id].port)

    def unexpected_exits(self) -> list[str]:
        """The nodes whose process ended without being stopped, and how each ended."""
        ends = {node_id: running.status for node_id, running in self.running.items()}
        return [f"node {node_id} ended with status {status}" for node_id, status in ends.items() if status is not None]

    def last_lines(self) -> str:
        """The last serious log lines of each node, and its last lines."""
        return "\n".join(
            f"    node {node_id}: {line}" for node_id, server in self.servers.items() for line in _last_words(server)
        )

    def create_topic(
        self, topic: str, partitions: int, node_id: int = 1, config: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Create a topic. Returns when every partition has a leader and three replicas in sync."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in config.items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=3, configs=configs)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            client = self.client(node_id)
            answer = client.ask(request, CreateTopicsResponse, 5).topics[0]
            client.close()
            if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            if time.monotonic() > deadline:
                raise Unanswered(f"topic {topic}: {answer.error_message}")
            time.sleep(0.2)  # not all three are there yet
        self.await_in_sync(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        client = self.client()
        client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), DeleteTopicsResponse, 5)
        client.close()

    def partitions(self, topic: str, node_id: int = 1) -> list[MetadataResponsePartition]:
        """The partitions of a topic in the metadata of one node, in order."""
        client = self.client(node_id)
        try:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            found = client.ask(request, MetadataResponse, 9).topics[0].partitions
            return sorted(found, key=lambda each: each.partition_index)
        finally:
            client.close()

    def await_in_sync(self, topic: str, partitions: int) -> None:
        """Wait until all replicas are in sync in the metadata of every node."""
        deadline = time.monotonic() + PATIENCE_S
        for node_id in NODES:
            while not _are_in_sync(self.partitions(topic, node_id), partitions):
                if time.monotonic() > deadline:
                    raise Unanswered(f"{topic}: not all replicas are in sync after {PATIENCE_S:.0f} s")
                time.sleep(0.05)

    def controller(self, node_id: int = 1) -> int:
        client = self.client(node_id)
        topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
        answer = client.ask(DescribeQuorumRequest(topics=topics), DescribeQuorumResponse, 1)
        client.close()
        return answer.topics[0].partitions[0].leader_id

    def measure_usage(self, work: Callable[[], T]) -> tuple[T, ClusterUsage]:
        """Run `work`, and return its result and the resources that the three processes used meanwhile."""
        pids = [running.pid for running in self.running.values()]
        peak = _PeakResident(pids)
        before = [cpu_time(pid) for pid in pids]
        peak.start()
        try:
            result = work()
        except BaseException:
            peak.give_up()
            raise
        after = [cpu_time(pid) for pid in pids]
        peak.finish()
        spent = [now.since(then) for now, then in zip(after, before, strict=True)]
        cpu = CpuTime(sum(each.user_s for each in spent), sum(each.system_s for each in spent))
        return result, ClusterUsage(cpu, peak.resident_mb)


def _last_words(server: ClusterNode) -> list[str]:
    lines = (server.directory / "server.log").read_text(errors="replace").splitlines()
    grave = [line for line in lines[:-LAST_LINES] if any(word in line for word in SERIOUS_LOG_LINE)]
    return [line[:LINE_LENGTH_MAX] for line in (*grave[-LAST_LINES:], *lines[-LAST_LINES:])]


def _are_in_sync(found: list[MetadataResponsePartition], count: int) -> bool:
    return len(found) == count and all(each.leader_id > 0 and len(each.isr_nodes) == 3 for each in found)


class _PeakResident(threading.Thread):
    """Measures the peak of some processes' resident memory together."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self.resident_mb = 0.0
        self._pids = pids
        self._is_over = threading.Event()

    def run(self) -> None:
        with suppress(ProcessLookupError):
            while not self._is_over.wait(SAMPLE_S):
                self._look()

    def give_up(self) -> None:
        self._is_over.set()
        self.join()

    def finish(self) -> None:
        """Stop, and return the peak. Raises `ProcessLookupError` if a process has ended."""
        self._is_over.set()
        self.join()
        self._look()

    def _look(self) -> None:
        self.resident_mb = max(self.resident_mb, sum(memory(pid).resident_mb for pid in self._pids))
