"""A blocking client for what a measurement needs besides load: topics, producer ids, a first acknowledged produce."""

from __future__ import annotations

import socket
import struct
import time
from typing import TypeVar

from bench.frames import ProducerIdentity, batch_of, produce_error_position, produce_frame, request_frame
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.schema import spec_of

Response = TypeVar("Response")

RETRY_S = 0.001
PATIENCE_S = 60.0


class Unanswered(Exception):
    """Raised if the broker does not do what the measurement needs."""


class Client:
    """A blocking connection to a broker, which sends one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def exchange(self, frame: bytes) -> bytes:
        """Send an encoded request, and return its reply with the size in front."""
        self._socket.sendall(frame)
        head = self._receive(4)
        return head + self._receive(struct.unpack(">i", head)[0])

    def ask(self, message: object, response: type[Response], version: int) -> Response:
        reply = self.exchange(request_frame(message, version))
        position = 9 if version in spec_of(type(message)).flexible else 8
        return decode(response, memoryview(reply)[position:], version)

    def create_topic(self, name: str) -> None:
        """Create a topic with one partition and one replica. Returns when the topic accepts records."""
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = self.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 5).topics[0]
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Unanswered(f"topic {name}: {answer.error_message}")
        self.produce_with_retries(name)

    def auto_create_topic(self, name: str) -> None:
        """Request the metadata of the topic, so that the broker creates it automatically."""
        self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), MetadataResponse, 9)

    def delete_topic(self, name: str) -> None:
        self.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), DeleteTopicsResponse, 5)

    def new_producer(self) -> ProducerIdentity:
        """Return the id of a new idempotent producer. The request is repeated while a broker that has just started has
        no id yet.
        """
        deadline = time.monotonic() + PATIENCE_S
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while time.monotonic() < deadline:
            answer = self.ask(request, InitProducerIdResponse, 4)
            if answer.error_code == ErrorCode.NONE:
                return ProducerIdentity(answer.producer_id, answer.producer_epoch)
            time.sleep(0.05)
        raise Unanswered(f"no producer id: error {answer.error_code}")

    def produce_with_retries(self, topic: str, partition: int = 0) -> None:
        """Produce one small record, and repeat the request until it is acknowledged."""
        frame = produce_frame(topic, batch_of([100], time.time_ns() // 1_000_000), partition)
        position = produce_error_position(topic)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            (error,) = struct.unpack_from(">h", self.exchange(frame), position)
            if error == ErrorCode.NONE:
                return
            time.sleep(RETRY_S)
        raise Unanswered(f"{topic} takes no records: error {error}")

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def connect_with_retries(port: int, patience_s: float = PATIENCE_S) -> Client:
    """Connect to a port, with an attempt every millisecond until a process listens there."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return Client(port)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
