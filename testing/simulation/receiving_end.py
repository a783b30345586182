"""The receiving side of a simulated TCP connection: data that is in flight to one end, and data that has arrived there.

    flight (cable) --arrive--> arrived (the kernel of this end) --read--> this process

If the path is cut, data in flight waits until the cut is healed, or until the peer gives up (TCP's timeout). A kernel
whose process has ended answers data with a reset.
"""

from __future__ import annotations

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING

from moldau.protocol.primitives import BytesLike
from moldau.testing.simulation.life import Life

if TYPE_CHECKING:
    from moldau.testing.simulation.connection import Connection
    from moldau.testing.simulation.network import Network, Node


class ReceivingEnd(ABC):
    """One end of a connection, as the receiver of what its peer sends."""

    peer: Connection
    number: int

    def __init__(self, network: Network, node: Node, life: Life, context: Context, port: int) -> None:
        self.network = network
        self.node = node
        self.life = life
        self.context = context
        self.port = port
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._lost = False
        self._eof_sent = False
        self._outgoing: list[BytesLike] = []
        # An empty piece is the end of the stream.
        self._flight: deque[tuple[int, bytes]] = deque()
        self._arrived: deque[memoryview] = deque()
        self._unread_size = 0  # of both
        self._last_due_ns = 0
        self._arrival_due_ns: int | None = None
        self._blocked = False  # what is in flight waits for the path to change
        self._stalled_since_ns: int | None = None  # The time since which the peer has acknowledged nothing.
        self._reset_stalled = False
        self._receive_posted = False
        self._reading_paused = False

    @property
    def gone(self) -> bool:
        return self._lost or not self.life.alive

    @abstractmethod
    def lose(self, error: OSError) -> None:
        """Break the connection for this end. As in Linux, data that has arrived is read first."""

    @abstractmethod
    def _receive(self) -> None:
        """Read received data once, as much as the protocol takes in one call."""

    @abstractmethod
    def _post_flush(self) -> None:
        """Send outgoing data soon, because the peer's socket buffer may have room again."""

    def not_before(self, due_ns: int) -> None:
        """Let no data arrive at this end before `due_ns`, the time at which the TCP handshake is complete."""
        self._last_due_ns = due_ns

    def send(self, data: bytes) -> None:
        """Send data of the peer to this end: it is put in flight in pieces."""
        network, now_ns = self.network, self.network.loop.now_ns
        if network.on_sent is not None:
            network.on_sent(self, data)
        for piece in self._pieces(data):
            due_ns = max(now_ns + network.latency_ns(self.peer.node, self.node), self._last_due_ns)
            self._last_due_ns = due_ns
            self._flight.append((due_ns, piece))
        self._unread_size += len(data)
        if not self._blocked:
            self._schedule_arrival(self._flight[0][0])

    def _pieces(self, data: bytes) -> list[bytes]:
        """Cut data at random places. Every fourth cut is within the first 8 bytes, which hold lengths and headers."""
        random = self.network.random.random
        count = 1 + int(random() * self.network.profile.fragments_max)
        pieces: list[bytes] = []
        for _ in range(count - 1):
            if len(data) < 2:
                break
            reach = min(len(data), 8) if random() < 0.25 else len(data)
            position = 1 + int(random() * (reach - 1))
            pieces.append(data[:position])
            data = data[position:]
        pieces.append(data)
        return pieces

    def _schedule_arrival(self, due_ns: int) -> None:
        if self._arrival_due_ns is None or due_ns < self._arrival_due_ns:
            self._arrival_due_ns = due_ns
            self.network.loop.at(due_ns, self._arrive, due_ns)

    def _arrive(self, due_ns: int) -> None:
        """Let the pieces that are due arrive at this end's kernel. They wait if the path is cut, and cause a reset if
        the host has no process.
        """
        if due_ns != self._arrival_due_ns:
            return  # another event is due earlier or later
        self._arrival_due_ns = None
        if self._cannot_arrive():
            self._blocked = True
            self._stall()
            return
        now_ns = self.network.loop.now_ns
        unwanted = False
        while self._flight and self._flight[0][0] <= now_ns:
            piece = self._flight.popleft()[1]
            if self.gone:
                unwanted = unwanted or bool(piece)
                self._unread_size -= len(piece)
            else:
                self._arrived.append(memoryview(piece))
        if self._flight:
            self._schedule_arrival(self._flight[0][0])
        if unwanted:
            self.peer.receive_reset()
        elif self._arrived:
            self._post_receive()
        if self._cannot_acknowledge():
            self._stall()
        else:
            self._stalled_since_ns = None

    def _post_receive(self) -> None:
        readable = self._arrived and not self._reading_paused and not self._closing and self._protocol is not None
        if readable and not self._receive_posted and not self.gone:
            self._receive_posted = True
            self.network.loop.post(self.life, self.context, self._receive)

    def pause_reading(self) -> None:
        if not self._closing:
            self._reading_paused = True

    def resume_reading(self) -> None:
        if not self._closing and self._reading_paused:
            self._reading_paused = False
            self._post_receive()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def _read(self, size_max: int) -> bytes:
        """Take at most `size_max` bytes of data that has arrived, but nothing beyond the end of the stream. Sometimes
        fewer bytes are taken, as if the others had arrived a little later.
        """
        random, separate = self.network.random.random, self.network.profile.separate_probability
        taken: list[memoryview] = []
        size = 0
        while self._arrived and len(self._arrived[0]) and size < size_max:
            piece = self._arrived.popleft()
            if size + len(piece) > size_max:
                self._arrived.appendleft(piece[size_max - size :])
                piece = piece[: size_max - size]
            taken.append(piece)
            size += len(piece)
            if random() < separate:
                break
        self._unread_size -= size
        return b"".join(taken)

    def _wake_writer(self) -> None:
        peer = self.peer
        if peer._outgoing and not peer.gone and not self.network.is_cut(self.node, peer.node):
            peer._post_flush()

    def _cannot_arrive(self) -> bool:
        return not self.node.up or self.network.is_cut(self.peer.node, self.node)

    def _cannot_acknowledge(self) -> bool:
        return self.network.is_cut(self.node, self.peer.node)

    def _stall(self) -> None:
        if self._stalled_since_ns is None:
            loop = self.network.loop
            self._stalled_since_ns = loop.now_ns
            loop.at(loop.now_ns + self.network.profile.timeout_ns, self._give_up, loop.now_ns)

    def _give_up(self, since_ns: int) -> None:
        if self._stalled_since_ns == since_ns:
            self.peer.lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def path_changed(self) -> None:
        """Send stalled data again, because a cut was healed or a host came up."""
        loop, network = self.network.loop, self.network
        if self._cannot_arrive():
            return
        if self._blocked:
            self._blocked = False
            self._arrival_due_ns = None
            self._schedule_arrival(loop.now_ns + int(network.random.random() * network.profile.retransmit_ns_max))
        elif not self._cannot_acknowledge():
            self._stalled_since_ns = None
            self._wake_writer()
        if self._reset_stalled:
            self._reset_stalled = False
            self.receive_reset()

    def receive_reset(self) -> None:
        """Send a reset from the peer's kernel to this end. It arrives after all data that the peer has sent before."""
        loop = self.network.loop
        due_ns = loop.now_ns + self.network.latency_ns(self.peer.node, self.node)
        loop.at(max(due_ns, self._last_due_ns), self._reset_arrives)

    def _reset_arrives(self) -> None:
        if self._cannot_arrive():
            self._reset_stalled = True
        else:
            self.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def host_died(self, *, kernel_lives: bool, reset: bool) -> None:
        """Close this end, because the process of its host has ended. Data that the kernel had sent before may still
        arrive at the peer.
        """
        peer, random = self.peer, self.network.random
        if reset or (kernel_lives and self._arrived):
            peer.receive_reset()
        elif kernel_lives:
            if not self._eof_sent:
                peer.send(b"")
        else:
            while peer._flight and random.random() < 0.5:
                peer._unread_size -= len(peer._flight.pop()[1])
        self.network.forget(self)
