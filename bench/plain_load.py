"""The loop of the load generator in Python, for machines without a C compiler."""

from __future__ import annotations

import select
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Sequence

from bench.frames import Frames
from bench.outcome import LoadFailed, Outcome

RECEIVE_SIZE = 1 << 20
SILENCE_S_MAX = 30.0

_HEAD = struct.Struct(">i").unpack_from
_ERROR = struct.Struct(">h").unpack_from


class _Stream:
    """One connection, with its outstanding requests and the part of a reply that has arrived."""

    def __init__(self, port: int, frames: Frames, allowed: int, requests: int, error_position: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent_size = 0
        self.received_size = 0
        self.waits_to_write = False
        self._frames = frames
        self._to_send = requests
        self._allowed = allowed
        self._is_paced = not allowed
        self._due: deque[int] = deque()
        """When requests of an open loop were to leave."""
        self._unsent = memoryview(b"")
        self._sent_at: deque[int] = deque()
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._kept = 0
        self._left = 0
        self._error_position = error_position

    def send(self) -> None:
        """Send as many requests as may be in flight, as far as the socket takes them."""
        while True:
            if not self._unsent:
                count = min(self._allowed, self._to_send)
                if not count:
                    self.waits_to_write = False
                    return
                self._unsent = self._frames.next_frames(count)
                count = len(self._unsent) // self._frames.frame_size
                self._allowed -= count
                self._to_send -= count
                if self._due:
                    self._sent_at.extend(self._due.popleft() for _ in range(count))
                else:
                    self._sent_at.extend([time.perf_counter_ns()] * count)
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                self.waits_to_write = True
                return
            self.sent_size += sent
            self._unsent = self._unsent[sent:]

    def receive(self, latencies: array[int]) -> int:
        """Read once. Returns the number of replies that are complete now."""
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
            if not self._is_paced:
                self._allowed += completed
        return completed

    def allow_request(self, due_ns: int) -> None:
        """Allow one more request of an open loop, which was due at this time."""
        self._due.append(due_ns)
        self._allowed += 1

    def _count_replies(self, size: int) -> int:
        """Count the replies in `buffer[:size]`. The beginning of an incomplete reply is kept for the next call."""
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


def run_plain_load(
    ports: Sequence[int],
    frames: list[Frames],
    *,
    in_flight: int,
    requests: int,
    error_position: int,
    interval_ns: int = 0,
) -> Outcome:
    """Run a load. `load.run_load` describes the arguments."""
    share, rest = divmod(requests, len(frames))
    allowed = 0 if interval_ns else in_flight
    streams = [
        _Stream(ports[index], each, allowed, share + (index < rest), error_position)
        for index, each in enumerate(frames)
    ]
    latencies = array("Q")
    began, cpu_before = time.perf_counter(), time.thread_time()
    try:
        _exchange(streams, requests, latencies, interval_ns)
    finally:
        seconds, cpu_s = time.perf_counter() - began, time.thread_time() - cpu_before
        for stream in streams:
            stream.socket.close()
    sent_size = sum(stream.sent_size for stream in streams)
    received_size = sum(stream.received_size for stream in streams)
    return Outcome(requests, seconds, sent_size, received_size, array("Q", sorted(latencies)), cpu_s)


def _exchange(streams: list[_Stream], requests: int, latencies: array[int], interval_ns: int) -> None:
    by_descriptor = {stream.socket.fileno(): stream for stream in streams}
    schedule = _Schedule(streams, requests, interval_ns) if interval_ns else None
    writing: set[int] = set()
    for stream in streams:
        stream.send()
    polling = select.poll()
    for descriptor in by_descriptor:
        polling.register(descriptor, select.POLLIN)
    while len(latencies) < requests:
        wait_s = SILENCE_S_MAX if schedule is None else schedule.release_due()
        for descriptor, stream in by_descriptor.items():
            if stream.waits_to_write != (descriptor in writing):
                writing ^= {descriptor}
                polling.modify(descriptor, select.POLLIN | (select.POLLOUT if stream.waits_to_write else 0))
        events = _polled(polling, wait_s)
        if not events and wait_s == SILENCE_S_MAX:
            raise LoadFailed(f"no reply for {SILENCE_S_MAX:.0f} s")
        for descriptor, event in events:
            stream = by_descriptor[descriptor]
            if event & ~select.POLLOUT:
                stream.receive(latencies)
            stream.send()


def _polled(polling: select.poll, wait_s: float) -> list[tuple[int, int]]:
    """Wait for events with more precision than Python's poll, which rounds up to a millisecond: too late for an open
    loop.
    """
    if wait_s >= 0.001:
        return polling.poll(int(wait_s * 1000))
    if not (events := polling.poll(0)):
        time.sleep(wait_s)
        events = polling.poll(0)
    return events


class _Schedule:
    """The schedule of an open loop: requests are due at a set distance, on the connections in turn."""

    def __init__(self, streams: list[_Stream], requests: int, interval_ns: int) -> None:
        self._streams = streams
        self._requests = requests
        self._interval_ns = interval_ns
        self._began = time.perf_counter_ns()
        self._released = 0

    def release_due(self) -> float:
        """Allow all requests that are due. Returns the time (s) until the next one is due."""
        now = time.perf_counter_ns()
        touched = set()
        while self._released < self._requests:
            due = self._began + self._released * self._interval_ns
            if due > now:
                break
            stream = self._streams[self._released % len(self._streams)]
            stream.allow_request(due)
            touched.add(stream)
            self._released += 1
        for stream in touched:
            stream.send()
        return SILENCE_S_MAX if self._released == self._requests else max(0.0, (due - time.perf_counter_ns()) / 1e9)
