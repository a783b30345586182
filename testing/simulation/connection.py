"""One end of a simulated TCP connection, as an asyncio transport.

    write -> outgoing (this process) --flush--> flight (cable) --arrive--> arrived (peer's kernel) --receive--> peer

`outgoing` keeps the caller's buffers without copying until the flush, after the callbacks that are ready now, as uvloop
does: a caller that changes a buffer after writing it sends the changed bytes. Flight and arrived together never exceed
the socket buffer; a reader that pauses therefore fills the writer's `outgoing`, and `pause_writing` is called.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from moldau.protocol.primitives import BytesLike
from moldau.testing.simulation.life import Life

if TYPE_CHECKING:
    from moldau.testing.simulation.network import Listener, Network, Node

RECEIVE_SIZE_MAX = 256 * 1024
HIGH_WATER_DEFAULT = 64 * 1024


class Connection(asyncio.Transport):
    peer: Connection
    number: int

    def __init__(
        self,
        network: Network,
        node: Node,
        life: Life,
        context: Context,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": local, "peername": remote, "socket": None})
        self.network = network
        self.node = node
        self.life = life
        self.context = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._lost = False
        # Sending.
        self._outgoing: list[BytesLike] = []
        self._outgoing_size = 0
        self._flush_posted = False
        self._writing_paused = False
        self._high = HIGH_WATER_DEFAULT
        self._low = HIGH_WATER_DEFAULT // 4
        self._eof_wanted = False
        self._eof_sent = False
        # Receiving. An empty piece is the end of the stream.
        self._flight: deque[tuple[int, bytes]] = deque()
        self._arrived: deque[memoryview] = deque()
        self._unread_size = 0  # of both
        self._last_due_ns = 0
        self._arrival_due_ns: int | None = None
        self._receive_posted = False
        self._reading_paused = False
        self._blocked = False  # what is in flight waits for the path to change
        self._stalled_since_ns: int | None = None  # The time since which the peer has acknowledged nothing.
        self._reset_stalled = False
        self._error_after_read: OSError | None = None

    @property
    def gone(self) -> bool:
        return self._lost or not self.life.alive

    # --- beginning ----------------------------------------------------------------------------------------------

    def not_before(self, due_ns: int) -> None:
        """What is sent to this end arrives after the handshake."""
        self._last_due_ns = due_ns

    def begin(self, factory: Callable[[], asyncio.BaseProtocol], begun: asyncio.Future[asyncio.BaseProtocol]) -> None:
        """The client's end: as asyncio, the protocol is made once the connection stands."""
        if begun.cancelled():
            self.abort()
            return
        protocol = self._protocol = factory()
        begun.set_result(protocol)
        self._attach(protocol)
        if self._lost:  # the server hung up at once
            self.network.loop.post(self.life, self.context, self._tell_lost, None)

    def accept(self, listener: Listener) -> None:
        if not listener.is_serving():
            self.abort()
        elif not self._lost:
            listener.admit(self)

    def begin_serving(self, protocol: asyncio.BaseProtocol) -> None:
        """This end, of a server, has its protocol."""
        self._protocol = protocol
        self._attach(protocol)

    def _attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._call(protocol.connection_made, self)
        self._post_receive()

    # --- sending ------------------------------------------------------------------------------------------------

    def write(self, data: BytesLike) -> None:
        assert isinstance(data, (bytes, bytearray, memoryview)), type(data)
        if self._eof_wanted and not self._closing:
            raise RuntimeError("cannot write after write_eof()")
        if self._closing or self.gone or not len(data):
            return
        if self.network.on_written is not None:
            self.network.on_written(self.peer, data)
        self._outgoing.append(data)
        self._outgoing_size += len(data)
        self._written()

    def writelines(self, list_of_data: Iterable[BytesLike]) -> None:
        for data in list_of_data:
            self.write(data)

    def _written(self) -> None:
        if self._outgoing_size > self._high:
            self._flush()
            if self._outgoing_size > self._high and not self._writing_paused:
                self._writing_paused = True
                if self._protocol is not None:
                    self._call(self._protocol.pause_writing)
        else:
            self._post_flush()

    def _post_flush(self) -> None:
        if not self._flush_posted:
            self._flush_posted = True
            self.network.loop.post(self.life, self.context, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_posted = False
        if not self._lost:
            self._flush()

    def _flush(self) -> None:
        """Hand over to the cable what the socket buffer takes."""
        if self._error_after_read is not None:
            self._lose_quietly(self._error_after_read)
            return
        room = self.network.profile.socket_buffer_bytes - self.peer._unread_size
        if self._outgoing and room > 0:
            data = b"".join(self._outgoing)
            if len(data) > room:
                self._outgoing = [memoryview(data)[room:]]
                data = data[:room]
            else:
                self._outgoing = []
            self._outgoing_size -= len(data)
            self.peer.send(data)
        if self._writing_paused and self._outgoing_size <= self._low:
            self._writing_paused = False
            if self._protocol is not None:
                self._call(self._protocol.resume_writing)
        if self._eof_wanted and not self._outgoing and not self._eof_sent:
            self._eof_sent = True
            self.peer.send(b"")
            if self._closing:
                self._lose_quietly(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_wanted and not self._closing:
            self._eof_wanted = True
            self._post_flush()

    def get_write_buffer_size(self) -> int:
        return self._outgoing_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_DEFAULT if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    # --- the cable: called for the receiving end ----------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Put data of the peer on its way to this end, in pieces."""
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
        """Cut at random places; every fourth cut is within the first bytes, where lengths and headers are."""
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
        """An event of the world: pieces reach this end's kernel, wait, or find no process."""
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
        """A cut was healed or a host came up: what was stalled is sent again."""
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
        """The peer's kernel knows nothing of this connection, and says so, after what it had said before."""
        loop = self.network.loop
        due_ns = loop.now_ns + self.network.latency_ns(self.peer.node, self.node)
        loop.at(max(due_ns, self._last_due_ns), self._reset_arrives)

    def _reset_arrives(self) -> None:
        if self._cannot_arrive():
            self._reset_stalled = True
        else:
            self.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    # --- receiving ----------------------------------------------------------------------------------------------

    def _post_receive(self) -> None:
        readable = self._arrived and not self._reading_paused and not self._closing and self._protocol is not None
        if readable and not self._receive_posted and not self.gone:
            self._receive_posted = True
            self.network.loop.post(self.life, self.context, self._receive)

    def _receive(self) -> None:
        """One read of the socket: as much as the protocol takes at once."""
        self._receive_posted = False
        if self._reading_paused or self._closing or self._lost or not self._arrived:
            return
        protocol = self._protocol
        if not len(self._arrived[0]):
            self._arrived.popleft()
            if protocol is not None and not self._call(protocol.eof_received):  # type: ignore[attr-defined]
                self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            self._fill(protocol)
        else:
            self._call(protocol.data_received, self._read(RECEIVE_SIZE_MAX))  # type: ignore[union-attr]
        if self._error_after_read is not None and not self._arrived:
            self._lose_quietly(self._error_after_read)
        self._wake_writer()
        self._post_receive()

    def _fill(self, protocol: asyncio.BufferedProtocol) -> None:
        buffer = self._call(protocol.get_buffer, -1)
        if buffer is None:
            return
        with memoryview(buffer) as view:
            assert len(view), "get_buffer() returned an empty buffer"
            data = self._read(len(view))
            view[: len(data)] = data
        self._call(protocol.buffer_updated, len(data))

    def _read(self, size_max: int) -> bytes:
        """Take what has arrived, up to the end of the stream, or as if a part of it had arrived a little later."""
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

    def pause_reading(self) -> None:
        if not self._closing:
            self._reading_paused = True

    def resume_reading(self) -> None:
        if not self._closing and self._reading_paused:
            self._reading_paused = False
            self._post_receive()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    # --- the end ------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is buffered, then the end. As Linux does, unread data turns the end into a reset."""
        if self._closing or self.gone:
            return
        self._closing = True
        if any(len(piece) for piece in self._arrived):
            self.peer.receive_reset()
            self._lose_quietly(None)
        else:
            self._eof_wanted = True
            if self._outgoing:
                self._post_flush()
            elif self._eof_sent:
                self._lose_quietly(None)
            else:
                self._flush()

    def abort(self) -> None:
        if not self.gone:
            self.peer.receive_reset()
            self._lose_quietly(None)

    def lose(self, error: OSError) -> None:
        """The connection is broken, as this end sees it; what had arrived is read first, as Linux has it."""
        if self.gone:
            return
        if self._arrived and self._protocol is not None and not self._closing:
            self._error_after_read = error
            self._post_receive()
        else:
            self._lose_quietly(error)

    def discard(self) -> None:
        """No listener takes the connection that has just been made."""
        self.peer.receive_reset()
        self._lose_quietly(None)

    def _lose_quietly(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._outgoing.clear()
        self._outgoing_size = 0
        self._arrived.clear()
        self._unread_size = sum(len(piece) for _, piece in self._flight)
        self.network.loop.post(self.life, self.context, self._tell_lost, error)
        self.network.forget(self)

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def host_died(self, *, kernel_lives: bool, reset: bool) -> None:
        """This end's life is over. What its kernel had already sent may still arrive."""
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

    def _call(self, callback: Callable[..., Any], *args: object) -> Any:
        """Call the protocol; what it raises breaks the connection, as in asyncio."""
        try:
            return callback(*args)
        except Exception as error:
            message = f"fatal error: {getattr(callback, '__qualname__', callback)} failed"
            self.network.loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
            self.abort()
            return None

    # --- asyncio's questions ------------------------------------------------------------------------------------

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def __repr__(self) -> str:
        return f"<Connection {self.get_extra_info('sockname')} -> {self.get_extra_info('peername')}>"
