"""One end of a simulated TCP connection, as an asyncio transport.

    write -> outgoing (this process) --flush--> flight (cable) --arrive--> arrived (peer's kernel) --receive--> peer

`outgoing` keeps the caller's buffers without copying until the flush, after the callbacks that are ready now, as uvloop
does: a caller that changes a buffer after writing it sends the changed bytes. Flight and arrived together never exceed
the socket buffer. If a reader pauses, the writer's `outgoing` therefore fills, and `pause_writing` is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from moldau.protocol.primitives import BytesLike
from moldau.testing.simulation.life import Life
from moldau.testing.simulation.receiving_end import ReceivingEnd

if TYPE_CHECKING:
    from moldau.testing.simulation.network import Listener, Network, Node

RECEIVE_SIZE_MAX = 256 * 1024
HIGH_WATER_DEFAULT = 64 * 1024


class Connection(ReceivingEnd, asyncio.Transport):
    def __init__(
        self,
        network: Network,
        node: Node,
        life: Life,
        context: Context,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        asyncio.Transport.__init__(self, {"sockname": local, "peername": remote, "socket": None})
        ReceivingEnd.__init__(self, network, node, life, context, local[1])
        # Sending.
        self._outgoing_size = 0
        self._flush_posted = False
        self._writing_paused = False
        self._high = HIGH_WATER_DEFAULT
        self._low = HIGH_WATER_DEFAULT // 4
        self._eof_wanted = False
        self._error_after_read: OSError | None = None

    # --- beginning ----------------------------------------------------------------------------------------------

    def begin(self, factory: Callable[[], asyncio.BaseProtocol], begun: asyncio.Future[asyncio.BaseProtocol]) -> None:
        """Connect the client. As in asyncio, `factory` makes the protocol once the connection is established."""
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
        """Connect the server with the protocol that it made."""
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
        """Send as many bytes on the cable as the socket buffer takes."""
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

    # --- receiving ----------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Read received data once, as much as the protocol takes in one call."""
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

    # --- the end ------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send the buffered data, then the end of the stream. As in Linux, a reset is sent instead if received data is
        unread.
        """
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
        """Break the connection for this end. As in Linux, data that has arrived is read first."""
        if self.gone:
            return
        if self._arrived and self._protocol is not None and not self._closing:
            self._error_after_read = error
            self._post_receive()
        else:
            self._lose_quietly(error)

    def discard(self) -> None:
        """Reset a connection that has just been made, because the client that made it has given up."""
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

    def _call(self, callback: Callable[..., Any], *args: object) -> Any:
        """Call a method of the protocol. As in asyncio, an exception that it raises breaks the connection."""
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
