"""Runs several clients in one thread. Each client is a generator that yields requests for brokers, and receives their
replies."""

from __future__ import annotations

import heapq
import select
import socket
import struct
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeAlias

from bench.outcome import LoadFailed


class Request(NamedTuple):
    """An encoded request, with its size in front, for the broker on a port of this machine."""

    port: int
    frame: bytes


Conversation: TypeAlias = "Generator[Sequence[Request] | float, list[memoryview], None]"
"""A generator that yields requests for brokers, which are sent at once, and receives their replies in the same order,
each with its size in front. It may also yield a number of seconds to wait, and then receives nothing. When it returns,
its connections are closed.
"""

RECEIVE_SIZE = 1 << 18
SILENCE_S_MAX = 30.0
POLL_MS_MIN = 1


class _Line:
    """One connection, with the part of a reply that has arrived."""

    def __init__(self, party: _Party, port: int) -> None:
        self.party = party
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def receive(self) -> memoryview | None:
        """Read once, and return the reply if it is complete. Raises `LoadFailed` if the broker has closed the
        connection.
        """
        data = self.socket.recv(RECEIVE_SIZE)
        if not data:
            raise LoadFailed("the broker closed a connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            return None
        reply, self._received = memoryview(self._received), bytearray()
        return reply


class _Party:
    """A conversation with its connections to brokers and the outstanding replies."""

    def __init__(self, number: int, conversation: Conversation) -> None:
        self.number = number
        self.lines: dict[int, _Line] = {}
        """By port."""
        self._conversation = conversation
        self._asked: Sequence[Request] = ()
        self._replies: dict[int, memoryview] = {}
        self._has_begun = False

    def has_all(self, port: int, reply: memoryview) -> bool:
        """Store a reply. Returns whether no further reply is outstanding."""
        self._replies[port] = reply
        return len(self._replies) == len(self._asked)

    def go_on(self) -> Sequence[Request] | float:
        """Pass the replies to the conversation, and send its next requests. Raises `StopIteration` at the end."""
        replies = [self._replies[each.port] for each in self._asked]
        self._asked, self._replies = (), {}
        said = self._conversation.send(replies) if self._has_begun else next(self._conversation)
        self._has_begun = True
        if not isinstance(said, float):
            self._asked = said
        return said


def run_conversations(conversations: Sequence[Conversation]) -> None:
    """Run conversations until all have ended. Raises `LoadFailed` if no reply arrives for half a minute."""
    lines: dict[int, _Line] = {}
    """By descriptor."""
    polling = select.poll()
    waiting: list[tuple[float, int]] = []
    parties = {number: _Party(number, each) for number, each in enumerate(conversations)}

    def line_of(party: _Party, port: int) -> _Line:
        if (line := party.lines.get(port)) is None:
            line = party.lines[port] = _Line(party, port)
            lines[line.socket.fileno()] = line
            polling.register(line.socket.fileno(), select.POLLIN)
        return line

    def end(number: int) -> None:
        for line in parties.pop(number).lines.values():
            polling.unregister(line.socket.fileno())
            lines.pop(line.socket.fileno()).socket.close()

    def go_on(number: int) -> None:
        party = parties[number]
        try:
            said = party.go_on()
        except StopIteration:
            end(number)
            return
        if isinstance(said, float):
            heapq.heappush(waiting, (time.monotonic() + said, number))
            return
        for request in said:
            line_of(party, request.port).socket.sendall(request.frame)

    try:
        for number in list(parties):
            go_on(number)
        while parties:
            events = polling.poll(_patience_ms(waiting))
            if not events and not waiting:
                raise LoadFailed(f"no reply for {SILENCE_S_MAX:.0f} s")
            for descriptor, _ in events:
                line = lines.get(descriptor)
                if line is None:
                    continue  # its conversation has ended since the poll
                reply = line.receive()
                if reply is not None and line.party.has_all(line.port, reply):
                    go_on(line.party.number)
            while waiting and waiting[0][0] <= time.monotonic():
                go_on(heapq.heappop(waiting)[1])
    finally:
        for line in lines.values():
            line.socket.close()


def _patience_ms(waiting: Sequence[tuple[float, int]]) -> float:
    if not waiting:
        return SILENCE_S_MAX * 1000
    return max(POLL_MS_MIN, (waiting[0][0] - time.monotonic()) * 1000)
