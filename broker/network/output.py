"""The output of a connection: replies are collected while received bytes are handled, and are sent in one write.

They are sent through the transport, or directly to the socket once a reply holds a slice of a file (`DirectOutput`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol, cast

from broker.network.reply_memory import ReplyOwner
from protocol.primitives import BytesLike, Chunk

if TYPE_CHECKING:
    from broker.network.connection_resources import ConnectionResources
    from broker.network.direct_output import DirectOutput

log = logging.getLogger("moldau.connection")

TAKES_FILES: Final = "takes_files"
"""The extra information of a transport whose `writelines` takes slices of files."""


class OutputOwner(ReplyOwner, Protocol):
    """The part of a connection that its output uses."""

    client_host: str

    def pause_writing(self) -> None:
        """Written bytes do not leave at once."""

    def writing_drained(self) -> None:
        """All written bytes have left."""


class Output:
    """The output of one connection. `transport` is None before the connection is made and once it is closed."""

    __slots__ = (
        "_closing",
        "_is_flush_scheduled",
        "_loop",
        "_memory",
        "_owner",
        "_resources",
        "direct",
        "held_size",
        "is_writable",
        "pieces",
        "ready_held_size",
        "sent_bytes",
        "size",
        "transport",
    )

    def __init__(self, resources: ConnectionResources, owner: OutputOwner) -> None:
        self._resources = resources
        self._loop = resources.loop
        self._memory = resources.reply_memory
        self._owner: OutputOwner | None = owner
        """The connection; None once it is lost, so that a closed connection is not a reference cycle."""
        self.transport: asyncio.Transport | None = None
        self._closing: asyncio.Transport | None = None
        """The transport of a closed connection, until the written bytes have left."""
        self.direct: DirectOutput | None = None
        """The output that bypasses the transport, once a reply holds a slice of a file."""
        self.pieces: list[Chunk] = []
        """The pieces that are collected and not written."""
        self.size = 0
        """The size of `pieces` in bytes."""
        self.sent_bytes = 0
        self.held_size = 0
        """The memory (bytes) of the replies that waited in the queue and have not been written."""
        self.ready_held_size = 0
        """The bytes of those replies that are among `pieces` already."""
        self.is_writable = True
        """False while written bytes wait for the peer to read."""
        self._is_flush_scheduled = False

    def flush(self) -> None:
        """Write the collected pieces."""
        pieces, transport = self.pieces, self.transport
        if not pieces or transport is None:
            return
        self.pieces = []
        self.sent_bytes += self.size
        self.size = 0
        if self.direct is not None:
            self.direct.write(pieces)
        elif len(pieces) == 1:
            transport.write(cast("BytesLike", pieces[0]))
        else:
            transport.writelines(cast("list[BytesLike]", pieces))
        # Most replies never wait, and most writes complete at once, so reply memory is not updated for them.
        if self.ready_held_size or not self.is_writable:
            self.held_size -= self.ready_held_size
            self.ready_held_size = 0
            self.tell_held()

    def flush_soon(self) -> None:
        """Flush after the current callback, because a commit completes many replies."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_flush_scheduled = False
        self.flush()

    def tell_held(self) -> None:
        """Report to reply memory the bytes that this connection holds now."""
        if self._owner is not None:
            self._memory.holds(self._owner, self.held_size + (0 if self.is_writable else self.unsent_size()))

    def unsent_size(self) -> int:
        """The memory (bytes) of written pieces that have not left."""
        transport = self.transport or self._closing
        if transport is None:
            return 0
        return transport.get_write_buffer_size() + (0 if self.direct is None else self.direct.held_size())

    def set_writable(self, is_writable: bool) -> None:
        self.is_writable = is_writable
        self.tell_held()

    def sends_files(self) -> bool:
        """Whether slices of files may be written; once true, it stays true.

        A transport under TLS reads them when it encrypts them. False where there is no socket (the simulated network).
        """
        transport, owner = self.transport, self._owner
        if self.direct is None and owner is not None and transport is not None and not transport.is_closing():
            if transport.get_extra_info(TAKES_FILES):
                return True
            if transport.get_extra_info("socket") is None or transport.get_extra_info("sslcontext") is not None:
                return False
            from broker.network.direct_output import DirectOutput

            shared = self._resources
            try:
                self.direct = DirectOutput(
                    shared.loop,
                    shared.environment,
                    shared.spawn,
                    transport,
                    owner.pause_writing,
                    owner.writing_drained,
                )
            except OSError as error:  # No file descriptor is left.
                log.warning("replies to %s are copied instead of sent from files: %s", owner.client_host, error)
        return self.direct is not None

    # The end

    def drop(self) -> asyncio.Transport | None:
        """Stop writing. Returns the transport, if the connection was open."""
        transport, self.transport = self.transport, None
        self.pieces = []
        self.held_size = self.ready_held_size = 0
        if self._owner is not None:
            self._memory.holds(self._owner, 0)
        return transport

    def close(self, transport: asyncio.Transport) -> None:
        """Close the dropped transport once the written bytes have left."""
        self._closing = transport
        if self._owner is not None:
            self._memory.holds(self._owner, self.unsent_size())
        if self.direct is None:
            transport.close()
        else:
            self.direct.end()

    def abort(self) -> None:
        """Close a transport at once, because its peer does not read the bytes that were written before it was
        closed.
        """
        if self._closing is not None:
            self._closing.abort()

    def lost(self) -> None:
        """The transport is lost."""
        self._closing = None
        self._owner = None
        if self.direct is not None:
            self.direct.close()
