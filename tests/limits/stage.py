"""A stage for one limit: a real node with settings of its own, an honest client beside, sockets for the others."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import TypeVar

from bench.client import Client
from bench.frames import FETCH_VERSION, batch_of, produce_frame, request_frame
from bench.pinger import Pinger
from bench.processes import memory
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.produce import ProduceResponse
from tests.chaos.processes import Node

HONEST = "honest"
HOST = "127.0.0.1"
QUESTION = request_frame(ApiVersionsRequest(client_software_name="limits", client_software_version="1"), 3)
PATIENCE_S = 20.0
FAILURES = ("a handler failed", "Traceback", "halted")
T = TypeVar("T")


class Wrong(Exception):
    """The node did not do what docs/limits.md says."""


class Stage:
    """`settings` are overrides; `prefix` is a command that runs the node's."""

    def __init__(
        self,
        directory: Path,
        ports: Sequence[int],
        settings: Sequence[str] = (),
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.port, self.controller_port, self.http_port = ports
        self.login_port = 0
        """The port of the listener with SASL, if there is one."""
        extra = [f"moldau.http.listener=http://{HOST}:{self.http_port}", *settings]
        self.node = Node(directory, self.port, self.controller_port, extra, prefix, variables)
        self.node.start()
        self.client = Client(self.port)
        self.client.create_topic(HONEST)
        self.idle_mb = memory(self.node.pid).resident_mb
        self._honest = self._pinger()
        self._sockets: list[socket.socket] = []

    def _pinger(self) -> Pinger:
        return Pinger(self.port, produce_frame(HONEST, batch_of([100], time.time_ns() // 1_000_000)), 0.01)

    def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """The honest client goes away for as long."""
        self._honest.end()
        self.client.close()
        self.node.terminate()
        meanwhile()
        self.node.start()
        self.client = Client(self.port)
        self._honest = self._pinger()

    def end(self) -> str:
        """What the honest client saw. Raises `Wrong` if it was not served, or the node complained of itself."""
        count = len(self._honest.latencies_ms)
        self.eventually("the honest client is served on", lambda: len(self._honest.latencies_ms) > count + 10)
        self._honest.end()
        for line in self.node.log.read_text(errors="replace").splitlines():
            if any(each in line for each in FAILURES):
                raise Wrong(line)
        grown_mb = memory(self.node.pid).resident_mb - self.idle_mb
        slowest_ms = self._honest.slowest_ms
        count = len(self._honest.latencies_ms)
        return f"{count} honest produces, slowest {slowest_ms:.0f} ms; {grown_mb:+.0f} MB"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._honest.end()
        for each in self._sockets:
            each.close()
        self.node.close()

    def honest_p99_ms(self, first: int) -> float:
        """The p99 of the honest client's produces from the one with this number on."""
        return quantiles(self._honest.latencies_ms[first:], n=100)[98]

    def honest_slowest_ms(self, first: int) -> float:
        return max(self._honest.latencies_ms[first:])

    def honest_latencies_ms(self, first: int, end: int) -> list[float]:
        """Of the honest client's produces from the first number up to the end."""
        return self._honest.latencies_ms[first:end]

    def await_honest(self, count: int) -> None:
        """Until the honest client has had so many answers."""
        self.eventually("the honest client is served on", lambda: self.honest_count >= count)

    @property
    def honest_count(self) -> int:
        return len(self._honest.latencies_ms)

    # Asking

    def check(self, is_so: bool, what: object) -> None:
        if not is_so:
            raise Wrong(what)

    def eventually(self, what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not is_so():
            if not self.node.is_running:
                raise Wrong(f"the process has ended before: {what}")
            if time.monotonic() > deadline:
                raise Wrong(f"not within {patience_s:.0f} s: {what}")
            time.sleep(0.02)

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        status, text = self.http("/metrics")
        self.check(status == 200, f"/metrics answers {status}")
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        found = [float(value) for key, value in lines if key.partition("{")[0] == name]
        self.check(bool(found), f"there is no metric {name}")
        return sum(found)

    def http(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def create(self, name: str, partitions: int = 1, **settings: object) -> ErrorCode:
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in settings.items()
        ]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        answer = self.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 5)
        return ErrorCode(answer.topics[0].error_code)

    def produce(self, topic: str, batch: bytes, partition: int = 0) -> ErrorCode:
        reply = memoryview(self.client.exchange(produce_frame(topic, batch, partition)))
        return ErrorCode(decode(ProduceResponse, reply[9:], 9).responses[0].partition_responses[0].error_code)

    def fetch(self, topic: str, offset: int = 0, size_max: int = 1 << 20, partition: int = 0) -> bytes:
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size_max)
        topics = [FetchTopic(topic=topic, partitions=[part])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size_max, topics=topics)
        reply = memoryview(self.client.exchange(request_frame(request, FETCH_VERSION)))
        data = decode(FetchResponse, reply[9:], FETCH_VERSION).responses[0].partitions[0]
        self.check(data.error_code == ErrorCode.NONE, f"a fetch of {topic} answers {data.error_code}")
        assert isinstance(data.records, (bytes, memoryview))
        return bytes(data.records)

    # Sockets of others

    def connect(self, source: str = HOST, *, receive_buffer: int | None = None) -> socket.socket:
        """Of another client; a timeout if nobody answers it for a second."""
        each = socket.socket()
        self._sockets.append(each)
        if receive_buffer is not None:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        each.settimeout(1.0)
        each.bind((source, 0))
        each.connect((HOST, self.port))
        return each

    def is_answered(self, client: socket.socket) -> bool:
        """Whether a question is; raises TimeoutError if nothing happens."""
        try:
            client.sendall(QUESTION)
            (size,) = struct.unpack(">i", _exactly(client, 4))
            _exactly(client, size)
        except (ConnectionError, EOFError):
            return False
        return True

    def is_closed(self, client: socket.socket) -> bool:
        """By the node; what it sent before is read."""
        try:
            while client.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


def is_root() -> bool:
    return os.geteuid() == 0


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
