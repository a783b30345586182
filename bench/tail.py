"""Fetches at the tail of a log: consumers wait for the records that a producer writes at a set rate.

A delivery counts from the time at which its request was to leave to the end of the reply that brings it to a consumer.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from array import array
from collections.abc import Callable
from typing import NamedTuple

from bench.contenders import Contender, ResourceUsage, run_in_turns, warmed_contenders
from bench.figures import Figure
from bench.frames import (
    batch_for_frame_size,
    fetch_error_position,
    fetch_frame,
    produce_error_position,
    produce_frame,
)
from bench.groups import RunForm
from bench.outcome import LoadFailed, Outcome
from bench.subjects import Bench
from moldau.protocol.record_batch import parse_header

NAME = "tail: 4 consumers follow 2,000 produces of 16 KiB a second"
CONSUMERS = 4
OFFSET_MARK = 0x0102030405060708
RATE = 2_000
FRAME_SIZE = 16 << 10
FETCH_SIZE_MAX = 4 << 20
RECEIVE_SIZE = 1 << 20
SECONDS = 8
SECONDS_QUICK = 3
SILENCE_S_MAX = 30.0

_HEAD = struct.Struct(">i").unpack_from
_ERROR = struct.Struct(">h").unpack_from


class TailRun(NamedTuple):
    """The deliveries of one run over all consumers, and the broker's resources."""

    outcome: Outcome
    spent: ResourceUsage


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    contenders = warmed_contenders(bench, form)
    deliveries = RATE * (SECONDS_QUICK if form.is_quick else SECONDS)

    def run(contender: Contender) -> TailRun:
        contender.warm_memory(deliveries * FRAME_SIZE)
        with contender.new_topic() as (_, topic):
            followed = _Followed(contender.port, topic)
            return TailRun(*contender.measure_usage(lambda: followed.run(deliveries)))

    runs = run_in_turns(contenders, form.rounds, run, _sentence)
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[TailRun], float]) -> Figure:
        return Figure(
            f"{NAME}: {what}",
            unit,
            {name: [of(each) for each in mine] for name, mine in runs.items()},
            generator=generator,
        )

    return [
        figure("p50 of a delivery", "ms", lambda run: run.outcome.latency_ms(0.5)),
        figure("p99 of a delivery", "ms", lambda run: run.outcome.latency_ms(0.99)),
        figure(
            "user + system CPU", "s/GB delivered", lambda run: run.spent.cpu.total_s / run.outcome.received_size * 1e9
        ),
        figure("RssAnon at most", "MB", lambda run: run.spent.anonymous_mb_max),
    ]


class Consumer:
    """A consumer that fetches again and again. It computes the number of batches in a reply from its size alone."""

    def __init__(self, port: int, topic: str, batch_size: int, records: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.delivered = 0
        self.received_size = 0
        self._frame = bytearray(fetch_frame(topic, OFFSET_MARK, FETCH_SIZE_MAX))
        self._offset_position = self._frame.index(struct.pack(">q", OFFSET_MARK))
        self._batch_size = batch_size
        self._records = records
        self._error_position = fetch_error_position(topic)
        self._buffer = bytearray(RECEIVE_SIZE)
        self._got = 0
        self._reply_size = 0

    @property
    def is_waiting(self) -> bool:
        """Whether no reply has begun, so that the next request may be sent."""
        return not self._got

    def ask(self) -> None:
        # Offset 0 is the record that showed that the topic takes records.
        struct.pack_into(">q", self._frame, self._offset_position, 1 + self.delivered * self._records)
        self.socket.sendall(self._frame)

    def receive(self) -> int:
        """Read once. Returns the number of batches in the reply if it is complete now."""
        # Of the reply only the head is looked at, which lies at the front of the first piece.
        size = self.socket.recv_into(self._buffer)
        if not size:
            raise LoadFailed("the broker closed a connection")
        if not self._got:
            if size < self._error_position + 2:
                size += self.socket.recv_into(memoryview(self._buffer)[size:])
            (error,) = _ERROR(self._buffer, self._error_position)
            if error:
                raise LoadFailed(f"error {error} in a reply")
            self._reply_size = 4 + _HEAD(self._buffer, 0)[0]
        self._got += size
        self.received_size += size
        if self._got < self._reply_size:
            return 0
        batches = self._reply_size // self._batch_size
        self._got = 0
        self.delivered += batches
        return batches


class _Followed:
    """One producer in an open loop and its consumers, in one event loop, where real ones are five processes."""

    def __init__(self, port: int, topic: str) -> None:
        batch = batch_for_frame_size(topic, FRAME_SIZE, time.time_ns() // 1_000_000)
        self._frame = produce_frame(topic, batch)
        self._producer = socket.create_connection(("127.0.0.1", port))
        self._producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reply_size = produce_error_position(topic)
        records = parse_header(batch).records_count
        self._consumers = [Consumer(port, topic, len(batch), records) for _ in range(CONSUMERS)]

    def run(self, deliveries: int) -> Outcome:
        latencies: list[int] = []
        began, cpu_before = time.perf_counter(), time.thread_time()
        try:
            self._follow(deliveries, latencies)
        finally:
            for each in (self._producer, *(consumer.socket for consumer in self._consumers)):
                each.close()
        seconds, cpu_s = time.perf_counter() - began, time.thread_time() - cpu_before
        received_size = sum(consumer.received_size for consumer in self._consumers)
        ordered = array("Q", sorted(latencies))
        return Outcome(deliveries, seconds, deliveries * len(self._frame), received_size, ordered, cpu_s)

    def _follow(self, deliveries: int, latencies: list[int]) -> None:
        by_descriptor = {consumer.socket.fileno(): consumer for consumer in self._consumers}
        polled = [self._producer.fileno(), *by_descriptor]
        interval_ns = 1_000_000_000 // RATE
        began = time.perf_counter_ns()
        sent = 0
        for consumer in self._consumers:
            consumer.ask()
        while any(consumer.delivered < deliveries for consumer in self._consumers):
            now = time.perf_counter_ns()
            while sent < deliveries and began + sent * interval_ns <= now:
                self._producer.sendall(self._frame)
                sent += 1
            wait_s = max(0, began + sent * interval_ns - now) / 1e9 if sent < deliveries else SILENCE_S_MAX
            readable, _, _ = select.select(polled, (), (), wait_s)
            if not readable and sent == deliveries:
                raise LoadFailed(f"no reply for {SILENCE_S_MAX:.0f} s")
            for descriptor in readable:
                follower = by_descriptor.get(descriptor)
                if follower is None:
                    self._producer.recv(RECEIVE_SIZE)
                    continue
                first = follower.delivered
                batches = follower.receive()
                if follower.delivered < deliveries and follower.is_waiting:
                    follower.ask()
                now = time.perf_counter_ns()
                latencies += [now - began - each * interval_ns for each in range(first, first + batches)]


def _sentence(run: TailRun) -> str:
    outcome = run.outcome
    return (
        f"p50 {outcome.latency_ms(0.5):.2f} ms, p99 {outcome.latency_ms(0.99):.2f} ms,"
        f" CPU {run.spent.cpu.total_s / outcome.received_size * 1e9:.2f} s a GB delivered,"
        f" {run.spent.anonymous_mb_max:.0f} MB (generator {100 * outcome.generator_share:.0f} % of a core)"
    )
