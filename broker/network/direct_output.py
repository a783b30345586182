"""Sends replies directly to the socket instead of through the transport: pieces of replies in order, and slices of
files by sendfile.

A transport takes bytes only, and copies them. Here a piece may be a `FileSlice`: the kernel sends it from the page
cache. Its bytes pass through no buffer of the broker, so a slow client occupies no memory. The pieces are sent through
a duplicate of the transport's descriptor, because an event loop refuses to watch the transport's own. What the first
unsent piece waits for:

    NOTHING    all pieces were sent
    TRANSPORT  the transport holds older bytes, which are sent first; it reports when its buffer is empty
    SENDER     the thread that sends files has the first pieces (`FileSending`); it reports when they have left
    SOCKET     the socket is full, or it had its share of this iteration; the event loop reports when it is writable
    DISK       the next bytes are not in the page cache; an executor thread reads them
    CLOSED     the connection is closed, and nothing more is sent

The event loop itself sends pieces of which few bytes are in files, and all pieces if the node has no thread that sends
files. While that thread has pieces, nothing else is written to the socket.

A piece that cannot be sent whole, because its file became shorter or cannot be read, ends the connection: the size of
the reply was sent already.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import Final

from moldau.broker.network.memory import held_size
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.file_sender import COLD
from moldau.broker.runtime.file_sending import IN_MEMORY, FileSending, Part, status_text
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.primitives import BytesLike, Chunk
from moldau.storage.files.file_slice import FileSlice

log = logging.getLogger("moldau.connection")

ITERATION_SIZE_MAX: Final = 1 << 18
"""The maximum number of bytes that a connection sends in one event loop iteration.

Then other connections are served: a client reads from one connection while the next one is written. With 1 MiB at a
time the kernel wakes the client for each 64 KiB instead.
"""
CACHED_FOR_S = 1.0
"""The time (seconds) for which the result of a page cache check is reused, because each check takes a system call."""
BUFFERS_PER_CALL_MAX: Final = 64
HANDED_SIZE_MIN: Final = 1 << 16
"""The least number of bytes in files that are handed over to the sending thread. This saves a fifth of the event loop's
time.
"""
HANDED_SIZE_MAX: Final = 1 << 20
"""The number of bytes in files at which a hand-over to the sending thread gets no further reply. The replies of a
hand-over count as sent only when all of it was sent.
"""
HANDED_BYTES_MAX: Final = 1 << 14
"""The maximum number of bytes in memory in one hand-over to the sending thread. During the hand-over they are not
counted as held by the connection.
"""


class OutputWait(Enum):
    """The event that the first unsent piece waits for. The docstring of the module explains the values."""

    NOTHING = "nothing"
    TRANSPORT = "transport"
    SENDER = "sender"
    SOCKET = "socket"
    DISK = "disk"
    CLOSED = "closed"


class DirectOutput:
    """The direct output of one connection.

    `blocked` is called when pieces have to wait, and `drained` when all pieces are sent. `progressed` is called each
    time that some pieces are sent and others still wait.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        environment: Environment,
        spawn: Spawn,
        transport: asyncio.Transport,
        blocked: Callable[[], None],
        drained: Callable[[], None],
        progressed: Callable[[], None],
    ) -> None:
        own = transport.get_extra_info("socket")
        self._socket = socket.fromfd(own.fileno(), own.family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._loop = loop
        self._environment = environment
        self._spawn = spawn
        self._transport = transport
        self._blocked = blocked
        self._drained = drained
        self._progressed = progressed
        self._pieces: deque[Chunk] = deque()
        self._sent_of_first = 0
        """The number of bytes of the first piece that were sent, if that piece is a slice of a file."""
        self._sending = environment.file_sending()
        self._handed_count = 0
        """The number of pieces, from the first on, that were handed over to the sending thread."""
        self._is_owned_by_thread = False
        """Whether the sending thread owns the socket, as it does from the first hand-over on."""
        self._looked_at_s = loop.time()
        self._is_ending = False
        self._waits = OutputWait.NOTHING
        if transport.get_write_buffer_size():
            self._waits = OutputWait.TRANSPORT
            # The transport now calls pause_writing, and resume_writing when its buffer is empty.
            transport.set_write_buffer_limits(high=0)

    @property
    def waits(self) -> OutputWait:
        return self._waits

    def held_size(self) -> int:
        """The memory (bytes) of the unsent pieces. Slices of files hold none, and pieces in the sending thread are not
        counted.
        """
        return held_size(islice(self._pieces, self._handed_count, None))

    def unsent_size(self) -> int:
        """The number of unsent bytes, including those in files."""
        return sum(map(len, self._pieces)) - self._sent_of_first

    def write(self, pieces: Iterable[Chunk]) -> None:
        """Send pieces after all earlier ones. Pieces that cannot be sent at once are queued."""
        if self._waits is OutputWait.CLOSED:
            return
        if not self._pieces:
            self._looked_at_s = self._loop.time()
        self._pieces.extend(pieces)
        if self._waits is OutputWait.NOTHING:
            self._send()
            if self._waits is not OutputWait.NOTHING:
                self._blocked()

    def transport_drained(self) -> None:
        """Continue to send: the transport's buffer is empty, and nothing more will be written to it."""
        if self._waits is OutputWait.TRANSPORT:
            self._go_on()

    def end(self) -> None:
        """Close the transport once all pieces are sent. Nothing is written afterwards."""
        self._is_ending = True
        if self._waits is OutputWait.NOTHING:
            self._end_now()

    def close(self) -> None:
        """Release the pieces and both descriptors, because the connection is closed."""
        if self._waits is OutputWait.SOCKET:
            self._loop.remove_writer(self._socket.fileno())
        self._waits = OutputWait.CLOSED
        self._pieces.clear()
        self._handed_count = 0
        if self._is_owned_by_thread and self._sending is not None:
            self._is_owned_by_thread = False
            self._sending.release(self._socket.detach())
        self._socket.close()

    # Sending

    def _go_on(self) -> None:
        self._send()
        if self._waits is OutputWait.NOTHING:
            self._end_now() if self._is_ending else self._drained()
        elif self._waits is not OutputWait.CLOSED:
            self._progressed()

    def _send(self) -> None:
        """Send as much as the socket takes in one iteration. Sets `_waits` to what the first unsent piece waits for."""
        waited = self._waits
        self._waits = OutputWait.NOTHING
        pieces, left = self._pieces, ITERATION_SIZE_MAX
        try:
            if self._sending is not None:
                self._hand_over(self._sending)
            while pieces and left > 0 and self._waits is OutputWait.NOTHING:
                piece = pieces[0]
                left -= self._send_slice(piece, left) if isinstance(piece, FileSlice) else self._send_bytes()
        except BlockingIOError:
            pass
        except OSError as error:
            log.info("closing a connection: its reply could not be sent: %s", error)
            self._break(waited)
            return
        if pieces and self._waits is OutputWait.NOTHING:
            self._waits = OutputWait.SOCKET
        if waited is not self._waits:
            if waited is OutputWait.SOCKET:
                self._loop.remove_writer(self._socket.fileno())
            elif self._waits is OutputWait.SOCKET:
                self._loop.add_writer(self._socket.fileno(), self._go_on)

    def _send_slice(self, piece: FileSlice, size_max: int) -> int:
        position = piece.position + self._sent_of_first
        wanted = min(piece.size - self._sent_of_first, size_max)
        if not self._is_warm(piece, position, wanted):
            return 0
        sent = piece.file.send(self._socket.fileno(), wanted, position)
        if not sent:
            raise OSError("the file has become shorter than what was promised of it")
        self._have_left(sent)
        return sent

    def _send_bytes(self) -> int:
        """Send the pieces before the next slice of a file in one call. Returns the number of bytes sent. If a slice
        follows, the kernel sends its beginning in the same packet.
        """
        run: list[BytesLike] = []
        flags = 0
        for piece in self._pieces:
            if isinstance(piece, FileSlice):
                flags = socket.MSG_MORE
                break
            if len(run) == BUFFERS_PER_CALL_MAX:
                break
            run.append(piece)  # type: ignore[arg-type]
        sent = self._socket.send(run[0], flags) if len(run) == 1 else self._socket.sendmsg(run, (), flags)
        self._have_left(sent)
        return sent

    # Sending in the thread

    def _hand_over(self, sending: FileSending) -> None:
        """Hand the first pieces over to the sending thread, if enough of their bytes are in files and the thread
        accepts them.
        """
        parts = self._parts()
        if parts and self._is_first_warm() and sending.send(self, self._socket.fileno(), parts):
            self._is_owned_by_thread = True
            self._handed_count = len(parts)
            self._waits = OutputWait.SENDER

    def _parts(self) -> list[Part]:
        """The first pieces in the form that the sending thread takes; empty if they have fewer than `HANDED_SIZE_MIN`
        bytes in files.
        """
        parts: list[Part] = []
        in_files = in_memory = 0
        sent_of_first, ends_reply = self._sent_of_first, False
        for piece in self._pieces:
            if isinstance(piece, FileSlice):
                descriptor = piece.file.fileno()
                if descriptor is None:
                    break
                size = piece.size - sent_of_first
                parts.append((piece, descriptor, piece.position + sent_of_first, size))
                in_files += size
                sent_of_first = 0
                ends_reply = False
            else:
                in_memory += len(piece)
                # Two pieces of bytes in a row: the end of a reply, and the beginning of the next.
                if in_memory > HANDED_BYTES_MAX or (ends_reply and in_files >= HANDED_SIZE_MAX):
                    break
                parts.append((piece, IN_MEMORY, 0, 0))
                ends_reply = True
        return parts if in_files >= HANDED_SIZE_MIN else []

    def _is_first_warm(self) -> bool:
        """Whether the beginning of the first slice is in the page cache. The sending thread checks the other bytes."""
        piece = next(piece for piece in self._pieces if isinstance(piece, FileSlice))
        sent = self._sent_of_first
        return self._is_warm(piece, piece.position + sent, min(piece.size - sent, ITERATION_SIZE_MAX))

    def handed_over_ended(self, sent: int, status: int) -> None:
        """Continue after the sending thread has ended a hand-over and sent `sent` bytes of it. `status` is that of
        `file_sender.EndedJob`: 0 if all bytes were sent.
        """
        if self._waits is not OutputWait.SENDER:
            return  # The connection was closed meanwhile.
        self._handed_count = 0
        self._have_left(sent)
        if status == COLD:
            self._looked_at_s = -CACHED_FOR_S
        elif status:
            log.info("closing a connection: its reply could not be sent: %s", status_text(status))
            self._break(self._waits)
            return
        else:
            self._looked_at_s = self._loop.time()
        self._go_on()

    def _have_left(self, size: int) -> None:
        """Remove the first `size` unsent bytes from the queue, because they were sent."""
        pieces = self._pieces
        left = self._sent_of_first + size
        while pieces and left >= len(pieces[0]):
            left -= len(pieces.popleft())
        if left and not isinstance(pieces[0], FileSlice):
            pieces[0] = memoryview(pieces[0])[left:]  # type: ignore[arg-type]
            left = 0
        self._sent_of_first = left

    # The page cache

    def _is_warm(self, piece: FileSlice, position: int, size: int) -> bool:
        """Whether bytes of a slice are in the page cache. If they are not, an executor thread begins to read them.

        The handler of the request has made the same check. It is repeated only if the last check is older than
        `CACHED_FOR_S`.
        """
        now_s = self._loop.time()
        if now_s - self._looked_at_s <= CACHED_FOR_S:
            return True
        self._looked_at_s = now_s
        if piece.file.is_cached(size, position):
            return True
        self._waits = OutputWait.DISK
        self._spawn(self._warm(FileSlice(piece.open_file, position, size)))
        return False

    async def _warm(self, piece: FileSlice) -> None:
        try:
            await self._environment.offload(piece.warm)
        except OSError as error:
            if self._waits is OutputWait.DISK:
                log.error("closing a connection: the records of its reply cannot be read: %s", error)
                self._break(OutputWait.DISK)
            return
        if self._waits is OutputWait.DISK:
            self._looked_at_s = self._loop.time()
            self._go_on()

    # The end

    def _break(self, waited: OutputWait) -> None:
        self._waits = waited
        self.close()
        self._transport.abort()

    def _end_now(self) -> None:
        self.close()
        self._transport.close()
