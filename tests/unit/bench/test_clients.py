"""What the bench takes from the words of Kafka's tools, and how a consumer at the tail counts what it gets."""

from __future__ import annotations

import socket
import struct
import threading

from bench.frames import batch_of, fetch_error_position
from bench.kafka_tools import _fetch_rate, _steady_rate
from bench.tail import Consumer

PRODUCER = """\
Warmup first 100000 records. Steady state results will print after the complete test summary.
189142 records sent, 37828.4 records/sec (3.61 MB/sec), 2738.6 ms avg latency, 3566.0 ms max latency.
300000 records sent, 38466.470060 records/sec (3.67 MB/sec), 2591.64 ms avg latency, 3566.00 ms max latency.
200000 steady state records sent, 39054.872095 records/sec (3.72 MB/sec), 2718.56 ms avg latency.
"""
CONSUMER = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-21 19:49:50:361, 2026-11-21 19:49:53:102, 28.6, 10.4, 300000, 109449.1062, 978, 1763, 16.2282, 170164.4923
"""


def test_a_producers_rate_is_its_steady_state() -> None:
    assert _steady_rate(PRODUCER) == 39054.872095


def test_a_consumers_rate_is_without_joining() -> None:
    assert _fetch_rate(CONSUMER) == 170164.4923


def test_a_consumer_at_the_tail_asks_for_what_follows_the_batches_that_it_got() -> None:
    batch = batch_of([1000] * 3, 0)
    head = bytes(fetch_error_position("topic") - 4 + 2)
    reply = struct.pack(">i", len(head) + 2 * len(batch)) + head + 2 * batch
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted:
                for _ in range(2):
                    (size,) = struct.unpack(">i", accepted.recv(4, socket.MSG_WAITALL))
                    asked.append(accepted.recv(size, socket.MSG_WAITALL))
                    accepted.sendall(reply[:50])
                    accepted.sendall(reply[50:])

        server = threading.Thread(target=serve)
        server.start()
        consumer = Consumer(listener.getsockname()[1], "topic", len(batch), 3)
        for round_number in (1, 2):
            consumer.ask()
            while not consumer.receive():
                assert not consumer.is_waiting
            assert consumer.delivered == 2 * round_number and consumer.is_waiting
        server.join()
        consumer.socket.close()
    # After the record at offset 0, two batches of three records in each reply.
    assert struct.pack(">q", 1) in asked[0] and struct.pack(">q", 7) in asked[1]
    assert consumer.received_size == 2 * len(reply)
