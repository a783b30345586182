"""The cost of a fetch of 1 MiB without the kernel's sending: `python bench/micro/fetch_path.py`.

The connection, handler, log and output are the real ones, over a real file. `sendfile` is left out, in the event loop
and in the thread that sends files, because its cost depends only on the size. Prints the CPU time (microseconds) of a
fetch as the median of many rounds, including the lookups in the page cache. `--profile` prints a profile instead.
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.frames import batch_for_frame_size, fetch_frame
from moldau.broker.apis.catalogue import routes
from moldau.broker.network.client_quotas import ClientQuotas
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
from moldau.broker.runtime.file_sending import IN_MEMORY, FileSending, HandOverOwner, Part
from moldau.broker.runtime.loop_steps import LoopSteps
from moldau.replication.fetch_plan import FetchPlanner
from moldau.replication.fetch_session import FetchSessions
from moldau.replication.partition import Partition
from moldau.replication.replication_quota import ReplicationQuota
from moldau.replication.source import LocalLogSource
from moldau.security.quotas.sampled_rate import QuotaWindows
from moldau.storage.files.local_files import LocalFile, LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

TOPIC = "micro"
FETCH_SIZE = 1 << 20
BATCH_SIZE = 256 << 10
LOG_SIZE = 64 << 20
ROUNDS = 25
ROUND_FETCHES = 1_000


class Wire(asyncio.Transport):
    """A transport that collects the small pieces of replies until `drain`."""

    def __init__(self) -> None:
        super().__init__()
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self.is_paused = False
        """Whether a part of a reply has not left yet. The connection takes no request meanwhile, and sends a part in
        each iteration."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._ours if name == "socket" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def drain(self) -> int:
        size = 0
        try:
            while True:
                size += len(self._theirs.recv(1 << 20))
        except BlockingIOError:
            return size


class ImmediateSender:
    """Replaces `FileSending`: pieces in memory are sent at once, and slices of files are left out."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def send(self, owner: HandOverOwner, socket: int, parts: list[Part]) -> bool:
        sent = sum(
            os.write(socket, cast("bytes", data)) if file == IN_MEMORY else size for data, file, _, size in parts
        )
        self._loop.call_soon(owner.handed_over_ended, sent, 0)
        return True

    def release(self, socket: int) -> None:
        os.close(socket)


class Environment(LocalEnvironment):
    """An environment that hands files over to the sending thread if a node would."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._sending = None if super().file_sending() is None else cast("FileSending", ImmediateSender(loop))

    def file_sending(self) -> FileSending | None:
        return self._sending


def request_clock(loop: asyncio.AbstractEventLoop) -> RequestClock:
    """Make the clock that measures every request, as in a node."""
    return RequestClock(LocalEnvironment.precise_ns, SlowRequests(loop, 1000), LoopSteps())


def assemble_broker(directory: str, loop: asyncio.AbstractEventLoop) -> tuple[Listener, int, int]:
    """Make the parts of a broker that a fetch needs. Returns also the number of records in a batch, and of batches in
    the log.
    """
    now_ms = time.time_ns() // 1_000_000
    made = Log.open(LocalFiles(), directory, LogConfig(), now_ms=now_ms)
    partition = Partition(TOPIC, bytes(16), 0, made, 0)
    partition.become_leader(1, 0, (1,))
    batch = batch_for_frame_size(TOPIC, BATCH_SIZE, now_ms)
    count = LOG_SIZE // BATCH_SIZE
    for _ in range(count):
        result = partition.append(memoryview(bytearray(batch)), -1, now_ms, 9)
        assert result.error == 0
    replicas = Replicas()
    replicas.add(partition)
    broker = SimpleNamespace(
        replicas=replicas,
        environment=Environment(loop),
        loop=loop,
        purgatory=Purgatory(loop, Timeouts(loop), lambda: 0),
        fetch_sessions=FetchSessions(0, 0, lambda: 1),
        fetch_size_max=55 << 20,
        reply_memory=ReplyMemory(-1, loop),
        quotas=ClientQuotas(QuotaWindows()),
        fetch_planner=FetchPlanner(replicas, LocalLogSource(), ReplicationQuota(), None, lambda: 0),
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
            broker.reply_memory,
            broker.purgatory,
            clock := request_clock(loop),
            Transcoder(broker.environment, RequestMemory(None, loop)),
            TurnScheduler(clock, loop.call_soon),
        ),
        request_size_max=100 << 20,
        opened=lambda _: None,
        security=plain_security(),
    )
    return cast("Listener", listener), partition.log.end_offset // count, count


def feed(loop: asyncio.AbstractEventLoop, connection: Connection, wire: Wire, frame: bytes) -> None:
    connection.get_buffer(-1)[: len(frame)] = frame
    connection.buffer_updated(len(frame))
    while wire.is_paused:
        loop.call_soon(loop.stop)
        loop.run_forever()


def measure(loop: asyncio.AbstractEventLoop, connection: Connection, wire: Wire, frames: list[bytes]) -> None:
    costs_us = []
    for _ in range(ROUNDS):
        spent_ns = fetched = 0
        while fetched < ROUND_FETCHES:
            for frame in frames:
                began = time.process_time_ns()
                feed(loop, connection, wire, frame)
                spent_ns += time.process_time_ns() - began
                assert wire.drain() > 50, "a reply is missing"
            fetched += len(frames)
        costs_us.append(spent_ns / 1000 / fetched)
    print(f"{statistics.median(costs_us):.2f} us a fetch (lowest {min(costs_us):.2f})")


def profile(loop: asyncio.AbstractEventLoop, connection: Connection, wire: Wire, frames: list[bytes]) -> None:
    profiler = cProfile.Profile()
    for _ in range(ROUND_FETCHES // len(frames)):
        for frame in frames:
            profiler.enable()
            feed(loop, connection, wire, frame)
            profiler.disable()
            wire.drain()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main() -> None:
    loop = asyncio.new_event_loop()
    LocalFile.send = lambda self, socket_descriptor, size, position: size  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as home:
        directory = f"{home}/{TOPIC}-0"
        os.mkdir(directory)
        listener, records, batches = assemble_broker(directory, loop)
        step = FETCH_SIZE // BATCH_SIZE
        frames = [fetch_frame(TOPIC, 1 + first * records, FETCH_SIZE) for first in range(0, batches - step, step)]
        connection, wire = Connection(listener, "127.0.0.1"), Wire()
        connection.connection_made(wire)
        (profile if "--profile" in sys.argv else measure)(loop, connection, wire, frames)
    loop.close()


if __name__ == "__main__":
    main()
