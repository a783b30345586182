"""Several connections in one thread, each led by a generator: it yields requests and is sent their replies."""

from __future__ import annotations

import heapq
import select
import socket
import struct
import time
from collections.abc import Generator, Sequence
from typing import TypeAlias

from bench.outcome import LoadFailed

Conversation: TypeAlias = "Generator[bytes | float, memoryview, None]"
"""Yields a request with its size before it, and is sent the reply, likewise; or yields seconds to wait, and is sent
nothing. What it returns ends its connection."""

NOTHING = memoryview(b"")
RECEIVE_SIZE = 1 << 18
SILENCE_S_MAX = 30.0
POLL_MS_MIN = 1


class _Line:
    """One connection and the reply that is arriving on it."""

    def __init__(self, port: int, conversation: Conversation) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conversation = conversation
        self._received = bytearray()

    def receive(self) -> memoryview | None:
        """Read once; the reply where it is complete. Raises `LoadFailed` where the broker has closed the connection."""
        data = self.socket.recv(RECEIVE_SIZE)
        if not data:
            raise LoadFailed("the broker closed a connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            return None
        reply, self._received = memoryview(self._received), bytearray()
        return reply

    def go_on(self, reply: memoryview | None) -> float | None:
        """Send what follows the reply; how long to wait instead. Raises `StopIteration` at the end."""
        said = next(self._conversation) if reply is None else self._conversation.send(reply)
        if isinstance(said, float):
            return said
        self.socket.sendall(said)
        return None


def hold(port: int, conversations: Sequence[Conversation]) -> None:
    """Until every conversation has ended. Raises `LoadFailed` after half a minute of silence."""
    lines = {line.socket.fileno(): line for line in (_Line(port, each) for each in conversations)}
    polling = select.poll()
    waiting: list[tuple[float, int]] = []

    def go_on(descriptor: int, reply: memoryview | None) -> None:
        try:
            pause_s = lines[descriptor].go_on(reply)
        except StopIteration:
            polling.unregister(descriptor)
            lines.pop(descriptor).socket.close()
            return
        if pause_s is not None:
            heapq.heappush(waiting, (time.monotonic() + pause_s, descriptor))

    try:
        for descriptor in list(lines):
            polling.register(descriptor, select.POLLIN)
            go_on(descriptor, None)
        while lines:
            events = polling.poll(_patience_ms(waiting))
            if not events and not waiting:
                raise LoadFailed(f"no reply for {SILENCE_S_MAX:.0f} s")
            for descriptor, _ in events:
                reply = lines[descriptor].receive()
                if reply is not None:
                    go_on(descriptor, reply)
            while waiting and waiting[0][0] <= time.monotonic():
                go_on(heapq.heappop(waiting)[1], NOTHING)
    finally:
        for line in lines.values():
            line.socket.close()


def _patience_ms(waiting: Sequence[tuple[float, int]]) -> float:
    if not waiting:
        return SILENCE_S_MAX * 1000
    return max(POLL_MS_MIN, (waiting[0][0] - time.monotonic()) * 1000)
