"""What the bench's transactional producers say, and how several conversations go on in one thread."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from bench.conversations import Conversation, Request, run_conversations
from bench.frames import ProducerIdentity
from bench.outcome import LoadFailed
from bench.transaction_loading import STATES, state_log
from bench.transactional_client import TransactionalBatch
from moldau.coordinator.runtime.log_reading import LogReader, RecordReader
from moldau.coordinator.transaction.records import change_of
from moldau.coordinator.transaction.transaction import COMPLETE_COMMIT
from moldau.protocol.record_batch import crc_is_valid, parse_header


def test_a_batch_is_of_the_producer_that_it_was_made_for_last() -> None:
    batch = TransactionalBatch((100, 100), 1_000)
    for producer in (ProducerIdentity(7, 0), ProducerIdentity(1 << 40, 300)):
        made = batch.of(producer)
        header = parse_header(made)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*producer, 0)
        assert header.is_transactional and header.records_count == 2 and crc_is_valid(made, 0, header)


def test_a_log_of_transactional_ids_ends_each_transaction() -> None:
    changes = LogReader(0, RecordReader(change_of)).read(state_log(["a", "b"]))
    assert [each.change.transactional_id for each in changes] == ["a"] * len(STATES) + ["b"] * len(STATES)
    last = changes[-1].change.value
    assert last is not None and last.state is COMPLETE_COMMIT


def echo(listener: socket.socket, connections: int) -> None:
    """Answer every frame with itself, in two pieces."""

    def serve(connection: socket.socket) -> None:
        while head := connection.recv(4):
            body = connection.recv(struct.unpack(">i", head)[0])
            connection.sendall(head[:3])
            connection.sendall(head[3:] + body)

    for _ in range(connections):
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_each_conversation_gets_the_replies_to_its_own_requests() -> None:
    heard: dict[str, list[bytes]] = {"a": [], "b": []}

    def conversation(name: str, port: int) -> Conversation:
        for number in range(3):
            (reply,) = yield [Request(port, frame(f"{name}{number}".encode()))]
            heard[name].append(bytes(reply)[4:])
            yield 0.001

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener, 2), daemon=True).start()
        port = listener.getsockname()[1]
        run_conversations([conversation("a", port), conversation("b", port)])
    assert heard == {"a": [b"a0", b"a1", b"a2"], "b": [b"b0", b"b1", b"b2"]}


def test_a_conversation_goes_on_once_every_broker_it_asked_has_replied() -> None:
    heard: list[list[bytes]] = []

    def conversation(ports: list[int]) -> Conversation:
        for asked in (ports, ports[:1], ports[::-1]):
            replies = yield [Request(port, frame(str(port).encode())) for port in asked]
            heard.append([bytes(reply)[4:] for reply in replies])

    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        for listener in (one, other):
            threading.Thread(target=echo, args=(listener, 1), daemon=True).start()
        ports = [listener.getsockname()[1] for listener in (one, other)]
        run_conversations([conversation(ports)])
    first, second = (str(port).encode() for port in ports)
    assert heard == [[first, second], [first], [second, first]]


def test_a_closed_connection_ends_a_measurement() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def conversation() -> Conversation:
            yield [Request(listener.getsockname()[1], frame(b"question"))]

        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        with pytest.raises((LoadFailed, ConnectionError)):
            run_conversations([conversation()])
