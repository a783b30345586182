"""The cost of a produce with acks=all at three brokers: `python bench/micro/replicated_path.py`.

All three run on one event loop of this process, over real sockets and files. As processes that share a core they would
cost twice as much. Prints the CPU time (microseconds) of a request, including the client's small part, as the median
and the minimum of some rounds.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeVar, cast

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.frames import batch_for_frame_size, produce_frame
from bench.micro.local_node import formatted_node
from bench.trio import NODES, PROPERTIES
from moldau.broker.node.main import GC_THRESHOLDS
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.conformance.brokers import Ports

T = TypeVar("T")

TOPIC = "micro"
PARTITIONS = 6
ROUNDS = 7
LOADS = {
    "200 B, one in flight": (1, 1, 200, 3_000),
    "200 B, 6 x 5 in flight": (PARTITIONS, 5, 200, 12_000),
    "16 KiB, 6 x 5 in flight": (PARTITIONS, 5, 16 << 10, 3_000),
}
"""For each load: connections, requests in flight on each, size of a request (bytes), requests of a round."""


class Producer(asyncio.Protocol):
    """Sends one frame repeatedly, with a fixed number of requests in flight."""

    def __init__(self, frame: bytes, in_flight: int, count: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frame = frame
        self._in_flight = in_flight
        self._unsent = count
        self._unanswered = count
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        self._send(self._in_flight)

    def end(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        data, position, count = self._rest + data, 0, 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            position, count = end, count + 1
        self._rest = data[position:]
        self._unanswered -= count
        self._send(count)
        if not self._unanswered:
            self.done.set_result(None)

    def _send(self, count: int) -> None:
        count = min(count, self._unsent)
        if count:
            assert self._transport is not None
            self._unsent -= count
            self._transport.write(self._frame * count)


async def ask(port: int, request: object, response: type[T], version: int) -> T:
    """Send one request in a flexible version over a new connection, and return the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(size_prefixed(request_frame(request, version, 1)))
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    reply = await reader.readexactly(size)
    writer.close()
    return decode(response, reply[5:], version)


async def start_brokers(home: str) -> list[int]:
    """Start three brokers with a topic. Returns the port of each partition's leader."""
    free = Ports(25_000, 26_000)
    ports = {node_id: free.pair() for node_id in NODES}
    brokers = []
    for node_id, port in ports.items():
        voters = ",".join(f"{each}@127.0.0.1:{its + 1}" for each, its in ports.items())
        data = f"{home}/{node_id}"
        text = PROPERTIES.format(node_id=node_id, voters=voters, port=port, controller_port=port + 1, data=data)
        brokers.append(formatted_node(dict(line.split("=", 1) for line in text.splitlines())))
    await asyncio.gather(*(broker.start() for broker in brokers))
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    error = -1
    while error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        await asyncio.sleep(0.1)  # not all three are there yet
        made = await ask(ports[1], CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CreateTopicsResponse, 5)
        error = made.topics[0].error_code
    await asyncio.sleep(1)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    found = (await ask(ports[1], asked, MetadataResponse, 9)).topics[0].partitions
    return [ports[each.leader_id] for each in sorted(found, key=lambda each: each.partition_index)]


async def spent_us(leaders: list[int], connections: int, in_flight: int, size: int, count: int) -> float:
    """Return the CPU time of the process (us) for each request of one round."""
    loop = asyncio.get_running_loop()
    batch = batch_for_frame_size(TOPIC, size, time.time_ns() // 1_000_000)
    producers = []
    for index in range(connections):
        producer = Producer(produce_frame(TOPIC, batch, index), in_flight, count // connections)
        await loop.create_connection(lambda made=producer: made, "127.0.0.1", leaders[index])  # type: ignore[misc]
        producers.append(producer)
    began_ns = time.process_time_ns()
    for producer in producers:
        producer.begin()
    await asyncio.gather(*(producer.done for producer in producers))
    spent_ns = time.process_time_ns() - began_ns
    for producer in producers:
        producer.end()
    return spent_ns / 1000 / count


async def measure(home: str) -> None:
    leaders = await start_brokers(home)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await spent_us(leaders, PARTITIONS, 5, 200, 6_000)
    for name, load in LOADS.items():
        costs_us = [await spent_us(leaders, *load) for _ in range(ROUNDS)]
        print(f"{name}: {statistics.median(costs_us):.1f} us a request (lowest {min(costs_us):.1f})")


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        uvloop.run(measure(home))


if __name__ == "__main__":
    main()
