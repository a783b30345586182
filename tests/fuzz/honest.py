"""A client that behaves: one small produce and one fetch after the other, each timed. A process of its own."""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import time

from moldau.protocol.compiler import decode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.schema import spec_of

TOPIC = "honest"
PAUSE_S = 0.002
"""Between one round and the next: an open rate well below what the broker can do."""


class HonestClient:
    """One connection."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.offset = 0

    def ask(self, request: object, response: type[object], version: int) -> object:
        is_flexible = version in spec_of(type(request)).flexible
        self.socket.sendall(size_prefixed(request_frame(request, version, 7)))
        reply = self.read(struct.unpack(">i", self.read(4))[0])
        return decode(response, reply[4 + is_flexible :], version)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    def create_topic(self, name: str, partitions: int = 1) -> bytes:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        reply = self.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        assert isinstance(reply, CreateTopicsResponse) and reply.topics[0].error_code in (0, 36), reply
        return reply.topics[0].topic_id

    def produce(self, value: bytes) -> None:
        batch = build_batch([Record(key=b"k", value=value, timestamp=round(time.time() * 1000))])
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data])
        reply = self.ask(request, ProduceResponse, 9)
        assert isinstance(reply, ProduceResponse)
        (answer,) = reply.responses[0].partition_responses
        assert answer.error_code == 0, answer
        self.offset = answer.base_offset

    def fetch(self) -> None:
        """What was just produced."""
        wanted = FetchPartition(partition=0, fetch_offset=self.offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
        )
        reply = self.ask(request, FetchResponse, 12)
        assert isinstance(reply, FetchResponse)
        data = reply.responses[0].partitions[0]
        assert data.error_code == 0 and data.records, data


def main(host: str, port: int) -> None:
    """Until told to stop by SIGTERM; latencies in milliseconds as JSON at the end."""
    client = HonestClient(host, port)
    running = [True]
    signal.signal(signal.SIGTERM, lambda *_: running.clear())
    produced: list[float] = []
    fetched: list[float] = []
    while running:
        start = time.perf_counter()
        client.produce(b"v" * 200)
        middle = time.perf_counter()
        client.fetch()
        produced.append((middle - start) * 1000)
        fetched.append((time.perf_counter() - middle) * 1000)
        time.sleep(PAUSE_S)
    print(json.dumps({"produce": produced, "fetch": fetched}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
