"""One whole broker on a simulated host, for stories about what it answers: `serve_and(story)` boots it and runs them.

    async def story(node: Node) -> None:
        client = await node.connect()
        reply = await client.ask(MetadataRequest(topics=None), 12)

Virtual time costs nothing; the broker's own objects may be looked at through `node.broker`.
"""

from __future__ import annotations

import asyncio
import importlib
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from moldau.broker.apis.catalogue import responses
from moldau.broker.config.loading import checked_config
from moldau.broker.faults.clock import FaultyEnvironment
from moldau.broker.faults.faults import Faults
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.node.node import Node as Broker
from moldau.protocol.compiler import decode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.schema import spec_of
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.testing.simulation.world import SimulatedEnvironment, World

HOST = "broker-1"
PORT = 9092
CONTROLLER_PORT = 9093
API_VERSIONS = 18
PATIENCE_S = 600
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": f"{HOST}:{CONTROLLER_PORT}",
    "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://:{CONTROLLER_PORT}",
    "advertised.listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class Closed(Exception):
    """The broker closed the connection."""


class Client:
    """One connection; requests may be pipelined by sending several before the first reply is read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = client_id.encode()
        self.is_peer_alive: Callable[[], bool] = lambda: True
        """Whether the process at the other end is still alive, as far as the creator of this client knows."""
        self._sent: list[tuple[int, object, int]] = []
        self._count = 0

    async def ask(self, request: object, version: int) -> Any:
        """Send, and wait for the reply."""
        self.send(request, version)
        return await self.reply()

    def send(self, request: object, version: int, *, is_answered: bool = True) -> None:
        """Send without waiting."""
        self._count += 1
        if is_answered:
            self._sent.append((self._count, request, version))
        self.writer.write(size_prefixed(request_frame(request, version, self._count, self.client_id)))

    async def reply(self) -> Any:
        """The next reply, which must be that of the oldest request without one."""
        try:
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Closed from error
        correlation_id, request, version = self._sent.pop(0)
        assert struct.unpack_from(">i", frame) == (correlation_id,), "a reply out of order"
        spec = spec_of(type(request))
        kind = type(request).__name__.removesuffix("Request") + "Response"
        has_tags = version in spec.flexible and spec.key != API_VERSIONS
        return decode(getattr(importlib.import_module(type(request).__module__), kind), frame[4 + has_tags :], version)

    def close(self) -> None:
        self.writer.close()

    # What most stories begin with

    async def create(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic and wait until it is known.

        Returns its id. Dots in names of settings are written as underscores.
        """
        values = [CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=values)
        reply = await self.ask(CreateTopicsRequest(topics=[topic]), 7)
        (result,) = reply.topics
        assert result.error_code == 0, result.error_message
        await asyncio.sleep(0.01)
        topic_id: bytes = result.topic_id
        return topic_id

    async def set_quota(self, key: str, value: float | None, **entity: str | None) -> None:
        """Set a quota of an entity, in force when this returns; None removes it."""
        parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
        change = OpData(key=key, value=value or 0.0, remove=value is None)
        entry = RequestEntryData(entity=parts, ops=[change])
        reply = await self.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        assert [each.error_code for each in reply.entries] == [0], reply
        await asyncio.sleep(0.01)

    async def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        """Produce to one partition. Returns its answer."""
        reply = await self.ask(produce_request(topic, records, partition=partition, acks=acks), version)
        answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
        return answer

    async def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, version: int = 12, **fields: Any
    ) -> PartitionData:
        """Fetch from one partition without waiting. Returns its answer."""
        reply = await self.ask(fetch_request([(topic, partition, offset)], **fields), version)
        answer: PartitionData = reply.responses[0].partitions[0]
        return answer


class Node:
    """The broker under test and its world."""

    def __init__(self, world: World, properties: dict[str, str], *, has_faults: bool = False) -> None:
        self.world = world
        self.host = world.add_host(HOST)
        self.properties = properties
        self.has_faults = has_faults
        self.broker: Broker
        self.faults: Faults
        self._stop: asyncio.Event

    async def connect(self, port: int = PORT, client_id: str = "test") -> Client:
        while True:
            try:
                reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 24)
                return Client(reader, writer, client_id)
            except OSError:
                await asyncio.sleep(0.01)

    def boot(self) -> None:
        self.host.boot(self._serve)

    async def _serve(self, environment: SimulatedEnvironment) -> None:
        config = checked_config(self.properties)
        if read_meta_properties(environment.fs, config.log_dirs[0]) is None:
            format_directories(
                environment.fs,
                config,
                cluster_id="simulated-cluster-0000",
                features={},
                ignore_formatted=True,
                standalone=True,
                entropy=environment.entropy,
                now_ms=environment.wall_ms(),
            )
        self._stop = asyncio.Event()
        self.faults = Faults(responses(), environment.wall_ms)
        taken = self.faults if self.has_faults else None
        given: Any = environment if taken is None else FaultyEnvironment(environment, taken)
        self.broker = Broker(config, given, asyncio.get_running_loop(), faults=taken)
        try:
            await self.broker.start()
        except OSError:
            if not self.host.may_halt:
                raise
            return  # as `moldau serve` does: it says why, and ends
        await self._stop.wait()
        await self.broker.stop()

    def stop(self) -> None:
        """Ask for a clean stop; the host goes dark when it is done."""
        self._stop.set()


Story = Callable[[Node], Awaitable[None]]


def serve_and(story: Story, *, seed: int = 1, may_halt: bool = False, **properties: object) -> Node:
    """Boot a broker and live through the story; dots in names of properties are written as underscores."""
    given = {name.replace("_", "."): str(value) for name, value in properties.items()}
    return _live(story, PROPERTIES | given, seed=seed, may_halt=may_halt)


def serve_secured_and(story: Story, properties: dict[str, str]) -> Node:
    """Boot a broker with properties under their own names, such as those of security, and live through the story."""
    return _live(story, PROPERTIES | properties)


def serve_with_faults_and(story: Story) -> Node:
    """Boot a broker that takes the faults of `node.faults`, and live through the story."""
    return _live(story, PROPERTIES, has_faults=True)


def _live(
    story: Story, properties: dict[str, str], *, seed: int = 1, may_halt: bool = False, has_faults: bool = False
) -> Node:
    with World(seed) as world:
        node = Node(world, properties, has_faults=has_faults)
        node.host.may_halt = may_halt
        node.boot()

        async def run() -> None:
            await story(node)

        world.run(run(), limit_s=PATIENCE_S)
    return node


def batch(*values: str, **fields: Any) -> bytes:
    """A batch of records with these values, keys like them, and timestamps 1000, 1001, …"""
    records = [Record(key=value.encode(), value=value.encode(), timestamp=1000 + i) for i, value in enumerate(values)]
    return build_batch(records, **fields)


def produce_request(topic: str | bytes, records: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """A request with one batch for one partition; a topic given as bytes is sent by id."""
    data = [PartitionProduceData(index=partition, records=records)]
    named = TopicProduceData(topic_id=topic) if isinstance(topic, bytes) else TopicProduceData(name=topic)
    named.partition_data = data
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[named])


def fetch_request(
    wanted: Iterable[tuple[str | bytes, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    **fields: Any,
) -> FetchRequest:
    """(topic, partition, offset) each; `fields` go to every partition."""
    topics = []
    for topic, partition, offset in wanted:
        each = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **fields
        )
        topics.append(
            FetchTopic(topic_id=topic, partitions=[each])
            if isinstance(topic, bytes)
            else FetchTopic(topic=topic, partitions=[each])
        )
    session_id, session_epoch = session
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
    )
