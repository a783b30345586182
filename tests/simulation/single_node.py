"""The broker itself on a simulated host, a client beside it, and power cuts. Run as a program: the digest of one seed.

Topics are made with flush.messages=1, so that an acknowledged record is a durable one, and must survive any power cut.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import sys
from dataclasses import dataclass, field
from typing import TypeVar, cast

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.node.node import Node
from moldau.protocol.compiler import decode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.schema import spec_of
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.testing.simulation.disk_calls import Operation
from moldau.testing.simulation.world import Host, SimulatedEnvironment, World

Response = TypeVar("Response")

HOST = "broker-1"
PORT = 9092
TOPIC = "numbers"
ACCEPTABLE = (0, 36)
"""A topic that a lost reply had already made exists: as good."""

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": f"{HOST}:9093",
    "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://:9093",
    "advertised.listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
}


async def serve(environment: SimulatedEnvironment) -> None:
    """A node from start until the host goes dark; one that cannot start ends its process."""
    try:
        await start(environment)
    except OSError as error:
        environment.halt(f"cannot start: {error}")
    await asyncio.get_running_loop().create_future()


async def start(environment: SimulatedEnvironment) -> None:
    config = checked_config(PROPERTIES)
    if read_meta_properties(environment.fs, "/data") is None:
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
    broker = Node(config, environment, asyncio.get_running_loop())
    await broker.start()


class Client:
    """One request at a time on a connection of its own; a lost connection is made again."""

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0

    async def ask(self, request: object, version: int, kind: type[Response]) -> Response:
        """Send, and wait for the answer; OSError if the connection breaks or no answer comes."""
        try:
            return await asyncio.wait_for(self._ask(request, version, kind), 5)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            if self._streams is not None:
                self._streams[1].close()
                self._streams = None
            raise ConnectionError("no answer") from error

    async def _ask(self, request: object, version: int, kind: type[Response]) -> Response:
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, PORT)
        reader, writer = self._streams
        self._correlation_id += 1
        is_flexible = version in spec_of(type(request)).flexible
        writer.write(size_prefixed(request_frame(request, version, self._correlation_id)))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        reply = await reader.readexactly(size)
        assert struct.unpack_from(">i", reply) == (self._correlation_id,)
        has_tags = is_flexible and kind is not ApiVersionsResponse
        return decode(kind, reply[4 + has_tags :], version)

    async def insist(self, request: object, version: int, kind: type[Response]) -> Response:
        """Ask until there is an answer."""
        while True:
            try:
                return await self.ask(request, version, kind)
            except ConnectionError:
                await asyncio.sleep(0.5)


@dataclass
class History:
    """What the client was told, and what it read in the end."""

    acknowledged: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    cuts: int = 0

    def problems(self) -> list[str]:
        """Sent in order, one at a time, each again until it is acknowledged: all must be there, in that order."""
        first_seen = list(dict.fromkeys(self.read))
        lost = [number for number in self.acknowledged if number not in self.read]
        found = [f"acknowledged and lost: {lost}"] if lost else []
        if first_seen != sorted(first_seen):
            found.append(f"out of order: {first_seen}")
        return found


async def scenario(world: World, host: Host, history: History, count: int, cuts: int, flush_messages: str) -> None:
    """Produce numbers while the power is cut now and then; then read everything back."""
    client = Client()
    versions = await client.insist(
        ApiVersionsRequest(client_software_name="sim", client_software_version="1"), 3, ApiVersionsResponse
    )
    assert versions.error_code == 0
    configs = [CreatableTopicConfig(name="flush.messages", value=flush_messages)]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
    created = await client.insist(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
    assert created.topics[0].error_code in ACCEPTABLE, created
    cut_after = {count * (i + 1) // (cuts + 1) for i in range(cuts)}
    for number in range(count):
        await produce(client, number)
        history.acknowledged.append(number)
        world.event("ack", number)
        if number in cut_after:
            host.crash()
            history.cuts += 1
            host.boot(serve)
    host.crash()
    host.boot(serve)
    history.read = await read_all(client)


async def operate(host: Host) -> None:
    """Start the process again whenever it has stopped itself; the machine, and its page cache, stay up."""
    while True:
        await asyncio.sleep(1)
        if not host.is_up:
            host.boot(serve)


async def produce(client: Client, number: int) -> None:
    """Send one record until it is acknowledged."""
    batch = build_batch([Record(value=str(number).encode(), timestamp=number)])
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        transactional_id=None,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    while True:
        reply = await client.insist(request, 9, ProduceResponse)
        if reply.responses[0].partition_responses[0].error_code == 0:
            return
        await asyncio.sleep(0.1)


async def read_all(client: Client) -> list[int]:
    """Every record, from the first to the high watermark."""
    numbers: list[int] = []
    offset = 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])
        reply = await client.insist(request, 11, FetchResponse)
        data = reply.responses[0].partitions[0]
        if data.error_code != 0:
            await asyncio.sleep(0.1)
            continue
        stored = records_of(cast("bytes", data.records)) if data.records else []
        records = [each for each in stored if each.offset >= offset]
        numbers += [int(each.value or b"") for each in records]
        if not records or records[-1].offset + 1 >= data.high_watermark:
            return numbers
        offset = records[-1].offset + 1


def run(
    seed: int,
    *,
    count: int = 30,
    cuts: int = 2,
    flush_messages: str = "1",
    failing_sync: int | None = None,
    keep_trace: bool = False,
) -> tuple[World, History]:
    """One seed. `failing_sync`: the disk refuses the sync of this number, and the node must stop itself."""
    history = History()
    with World(seed, keep_trace=keep_trace) as world:
        host = world.add_host(HOST)
        host.may_halt = failing_sync is not None
        if failing_sync is not None:
            host.disk.fail(Operation.SYNC, failing_sync, errno.EIO)
        host.boot(serve)

        async def operated() -> None:
            operator = asyncio.get_running_loop().create_task(operate(host))
            await scenario(world, host, history, count, cuts, flush_messages)
            operator.cancel()

        world.run(operated(), limit_s=600)
    return world, history


if __name__ == "__main__":
    finished, told = run(int(sys.argv[1]))
    sys.stdout.write(f"{finished.digest()} {told.problems()}\n")
