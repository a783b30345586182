"""The cost of a small produce from received bytes to the bytes of its reply: `python bench/micro/produce_path.py`.

The connection, handler, partition and log are the real ones, over a real file, without sockets and the event loop. Four
idempotent producers take turns, five requests at a time. Prints the CPU time (microseconds) of a request as the median
of many rounds, including the write to the page cache. `--profile` prints a profile instead.
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.frames import ProducerIdentity, SequencedFrames, batch_of, produce_error_position, produce_frame
from moldau.broker.apis.catalogue import routes
from moldau.broker.network.connection import RECEIVE_BUFFER_SIZE, Connection
from moldau.broker.network.connection_resources import ConnectionResources, Transcoder
from moldau.broker.network.listener import Listener
from moldau.broker.network.listener_security import plain_security
from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.network.request_times import RequestClock
from moldau.broker.network.route import ListenerRole
from moldau.broker.network.slow_requests import SlowRequests
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.broker.runtime.loop_steps import LoopSteps
from moldau.protocol.primitives import BytesLike
from moldau.replication.partition import Partition
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

TOPIC = "micro"
PRODUCERS = 4
IN_FLIGHT = 5
ROUNDS = 25
ROUND_REQUESTS = 20_000
NEXT_ITERATION: list[Callable[[], None]] = []
"""The callbacks that an event loop would call in its next iteration."""


class Replies(asyncio.Transport):
    """A transport that takes replies like a socket, and checks the error code of each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._error_position = produce_error_position(TOPIC)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: BytesLike) -> None:
        data = bytes(data)
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            assert data[self._error_position : self._error_position + 2] == b"\0\0", "an error in a reply"
            data = data[size:]
            self.count += 1

    def writelines(self, chunks: list[BytesLike]) -> None:  # type: ignore[override]
        for chunk in chunks:
            self.write(chunk)


class SilentOutput(Replies):
    """A transport that does nothing."""

    def write(self, data: BytesLike) -> None:
        pass

    def writelines(self, chunks: list[BytesLike]) -> None:  # type: ignore[override]
        pass


class NoWriteBack:
    """Replaces the flusher: appended records stay in the page cache."""

    def write_back(self, log: Log) -> None:
        pass


def request_clock(loop: asyncio.AbstractEventLoop) -> RequestClock:
    """The clock that measures every request, as in a node."""
    return RequestClock(LocalEnvironment.precise_ns, SlowRequests(loop, 1000), LoopSteps())


def assemble_broker(directory: str, loop: asyncio.AbstractEventLoop) -> Listener:
    """Make the parts of a broker that a produce needs."""
    now_ms = time.time_ns() // 1_000_000
    made = Log.open(LocalFiles(), directory, LogConfig(), now_ms=now_ms)
    partition = Partition(TOPIC, bytes(16), 0, made, 0)
    partition.become_leader(1, 0, (1,))
    replicas = Replicas()
    replicas.add(partition)
    broker = SimpleNamespace(
        replicas=replicas,
        environment=LocalEnvironment(loop),
        loop=loop,
        flusher=NoWriteBack(),
        purgatory=Purgatory(loop, Timeouts(loop), lambda: 0),
        has_authorizer=False,
    )
    listener = SimpleNamespace(
        routes=routes(ListenerRole.BROKER, cast("Any", broker)),
        is_for_nodes=False,
        resources=ConnectionResources(
            loop,
            broker.environment,
            lambda work, name="": None,
            memoryview(bytearray(RECEIVE_BUFFER_SIZE)),
            RequestMemory(None, loop),
            ReplyMemory(-1, loop),
            broker.purgatory,
            clock := request_clock(loop),
            Transcoder(broker.environment, RequestMemory(None, loop)),
            TurnScheduler(clock, NEXT_ITERATION.append),
        ),
        request_size_max=100 << 20,
        opened=lambda _: None,
        security=plain_security(),
    )
    return cast("Listener", listener)


def connect_producer(listener: Listener, transport: Replies) -> Connection:
    connection = Connection(listener, "127.0.0.1")
    connection.connection_made(transport)
    return connection


def socket_reads(frames: SequencedFrames, times: int) -> list[bytes]:
    """Build the received bytes of each read of a socket, before the measurement begins."""
    return [bytes(frames.next_frames(IN_FLIGHT)) for _ in range(times)]


def feed(connection: Connection, pieces: list[bytes]) -> None:
    buffer = connection.get_buffer(-1)
    for piece in pieces:
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        while NEXT_ITERATION:
            NEXT_ITERATION.pop()()


def measure(pairs: list[tuple[Connection, SequencedFrames]], times: int) -> None:
    costs_us = []
    for _ in range(ROUNDS):
        work = [(connection, socket_reads(frames, times)) for connection, frames in pairs]
        began = time.process_time_ns()
        for connection, pieces in work:
            feed(connection, pieces)
        costs_us.append((time.process_time_ns() - began) / 1000 / (times * IN_FLIGHT * len(pairs)))
    print(f"{statistics.median(costs_us):.2f} us a request (lowest {min(costs_us):.2f})")


def profile(pairs: list[tuple[Connection, SequencedFrames]], times: int) -> None:
    work = [(connection, socket_reads(frames, times)) for connection, frames in pairs]
    profiler = cProfile.Profile()
    profiler.enable()
    for connection, pieces in work:
        feed(connection, pieces)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as home:
        directory = f"{home}/{TOPIC}-0"
        os.mkdir(directory)
        listener = assemble_broker(directory, loop)
        now_ms = time.time_ns() // 1_000_000
        pairs = []
        checked = Replies()
        for producer_id in range(PRODUCERS):
            batch = batch_of([100], now_ms, ProducerIdentity(producer_id, 0))
            frames = SequencedFrames(produce_frame(TOPIC, batch), batch, IN_FLIGHT)
            feed(connect_producer(listener, checked), socket_reads(frames, 10))
            pairs.append((connect_producer(listener, SilentOutput()), frames))
        assert checked.count == PRODUCERS * IN_FLIGHT * 10
        times = ROUND_REQUESTS // PRODUCERS // IN_FLIGHT
        (profile if "--profile" in sys.argv else measure)(pairs, times)
    loop.close()


if __name__ == "__main__":
    main()
