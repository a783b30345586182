"""The load generator: a fixed number of ready-made requests in flight on each of several connections.

It spends next to nothing itself, so that on a small machine the broker is measured and not the client: requests are
built before, replies are counted and their error codes looked at, and one clock reading serves all that arrives at
once. What it does spend is in the outcome.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from array import array
from collections import deque
from typing import NamedTuple

from bench.frames import Frames

RECEIVE_SIZE = 1 << 20
SILENCE_S_MAX = 30.0

_HEAD = struct.Struct(">i").unpack_from
_ERROR = struct.Struct(">h").unpack_from


class LoadFailed(Exception):
    """A reply with an error, a closed connection or silence: there is nothing to measure."""


class Outcome(NamedTuple):
    """What a load took. Latencies run from the sending of a request to the reading of the end of its reply."""

    requests: int
    seconds: float
    sent_size: int
    received_size: int
    latencies_ns: array[int]
    generator_cpu_s: float

    @property
    def generator_share(self) -> float:
        """Of one core, what the generator itself used."""
        return self.generator_cpu_s / self.seconds

    def latency_ms(self, share: float) -> float:
        """A percentile: 0.99 is the latency that one request in a hundred exceeds."""
        ordered = sorted(self.latencies_ns)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6


class _Stream:
    """One connection, its requests under way and the bytes of the reply that is arriving."""

    def __init__(self, port: int, frames: Frames, in_flight: int, requests: int, error_position: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent_size = 0
        self.received_size = 0
        self.waits_to_write = False
        self._frames = frames
        self._to_send = requests
        self._allowed = in_flight
        self._unsent = memoryview(b"")
        self._sent_at: deque[int] = deque()
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._kept = 0
        self._left = 0
        self._error_position = error_position

    def send(self) -> None:
        """Send what is allowed to be in flight, as far as the socket takes it."""
        while True:
            if not self._unsent:
                count = min(self._allowed, self._to_send)
                if not count:
                    self.waits_to_write = False
                    return
                self._unsent = self._frames.next(count)
                count = len(self._unsent) // self._frames.frame_size
                self._allowed -= count
                self._to_send -= count
                self._sent_at.extend([time.perf_counter_ns()] * count)
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                self.waits_to_write = True
                return
            self.sent_size += sent
            self._unsent = self._unsent[sent:]

    def receive(self, latencies: array[int]) -> int:
        """Read once; the count of replies that were completed."""
        try:
            size = self.socket.recv_into(self._buffer[self._kept :])
        except BlockingIOError:
            return 0
        if not size:
            raise LoadFailed("the broker closed a connection")
        self.received_size += size
        completed = self._count_replies(self._kept + size)
        if completed:
            now = time.perf_counter_ns()
            for _ in range(completed):
                latencies.append(now - self._sent_at.popleft())
            self._allowed += completed
        return completed

    def _count_replies(self, size: int) -> int:
        """Go over `buffer[:size]`; the head of a reply that is not there as a whole is kept for the next time."""
        buffer, head_size = self._buffer, self._error_position + 2
        completed = 0
        position = min(self._left, size)
        if self._left:
            self._left -= position
            completed = 0 if self._left else 1
        while size - position >= head_size:
            end = position + 4 + _HEAD(buffer, position)[0]
            if _ERROR(buffer, position + self._error_position)[0]:
                raise LoadFailed(f"error {_ERROR(buffer, position + self._error_position)[0]} in a reply")
            if end > size:
                self._left = end - size
                position = size
                break
            completed += 1
            position = end
        self._kept = size - position
        if self._kept:
            buffer[: self._kept] = bytes(buffer[position:size])
        return completed


def run(port: int, frames: list[Frames], *, in_flight: int, requests: int, error_position: int) -> Outcome:
    """Send so many requests in all, spread over one connection for each of the frames, and wait for every reply."""
    share, rest = divmod(requests, len(frames))
    streams = [
        _Stream(port, each, in_flight, share + (index < rest), error_position) for index, each in enumerate(frames)
    ]
    latencies = array("Q")
    began, cpu_before = time.perf_counter(), time.process_time()
    try:
        _exchange(streams, requests, latencies)
    finally:
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_before
        for stream in streams:
            stream.socket.close()
    sent_size = sum(stream.sent_size for stream in streams)
    received_size = sum(stream.received_size for stream in streams)
    return Outcome(requests, seconds, sent_size, received_size, latencies, cpu_s)


def _exchange(streams: list[_Stream], left: int, latencies: array[int]) -> None:
    by_descriptor = {stream.socket.fileno(): stream for stream in streams}
    polling = select.epoll(len(streams))
    for descriptor in by_descriptor:
        polling.register(descriptor, select.EPOLLIN)
    registered: dict[int, bool] = dict.fromkeys(by_descriptor, False)
    for stream in streams:
        stream.send()
    with polling:
        while left:
            for descriptor, stream in by_descriptor.items():
                if stream.waits_to_write != registered[descriptor]:
                    registered[descriptor] = stream.waits_to_write
                    polling.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if stream.waits_to_write else 0))
            events = polling.poll(SILENCE_S_MAX)
            if not events:
                raise LoadFailed(f"no reply for {SILENCE_S_MAX:.0f} s")
            for descriptor, _ in events:
                stream = by_descriptor[descriptor]
                left -= stream.receive(latencies)
                stream.send()
