"""The byte stream of one connection under TLS: between the loop's transport and the protocol that it serves.

    transport ◀──▶ TlsStream ◀──▶ Connection or PeerLink      a protocol for its transport, and a transport for the
                                                              connection

    HANDSHAKE   steps run in executor threads (`Handshakes`), except a short last one; the transport is
                not read during one
    OPEN        received bytes are decrypted into the protocol's own buffer; written bytes are encrypted while the
                peer reads
    CLOSING     bytes that were written before `close` are still sent
    CLOSED      nothing is read or written

All streams of a loop share one buffer for received encrypted bytes, which is used within one callback. For a slow peer,
unsent bytes wait unencrypted; the transport holds at most `ENCRYPTED_SIZE_MAX` encrypted bytes. A slice of a file is
read piece by piece when it is encrypted, so it holds no memory before. Pieces that are not in the page cache are read
by an executor thread first.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Protocol, cast

from moldau.broker.network.replies import TAKES_FILES
from moldau.broker.network.tls.contexts import HandshakeChain
from moldau.broker.network.tls.handshakes import Handshakes
from moldau.protocol.primitives import BytesLike, Chunk
from moldau.storage.files.file_slice import FileSlice

log = logging.getLogger("moldau.connection")

ENCRYPTED_SIZE_MAX: Final = 1 << 18
"""The size (bytes) of encrypted output in the transport above which nothing more is encrypted."""
FULL_FLIGHT_SIZE_MIN: Final = 256
"""The minimum size (bytes) of a server's flight that has its certificate. A HelloRetryRequest is shorter."""
_NOT_PLAIN: Final = (b"\x14", b"\x17")
"""The TLS record types that change the cipher (20) and that hold encrypted messages (23)."""
RAW_BUFFER_SIZE: Final = 1 << 17
"""The size of the receive buffer (bytes) that all streams of a loop share."""
PIECE_SIZE_MAX: Final = 1 << 16
"""The maximum number of bytes that are encrypted at once. OpenSSL's own buffer grows to this size and never shrinks."""


class StreamState(Enum):
    """The states of a TLS stream."""

    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class SecuredProtocol(Protocol):
    """The protocol above a TLS stream: a buffered protocol of asyncio."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class StreamOwner(Protocol):
    """The owner of a stream, which is notified of the end of the handshake and of the connection."""

    def secured(self, stream: TlsStream) -> None:
        """Continue after a successful handshake. The peer's certificate, if it presented one, was verified."""

    def not_secured(self, stream: TlsStream, reason: str) -> None:
        """Count and log a failed handshake; the connection ends."""

    def lost(self, stream: TlsStream) -> None:
        """Forget the stream, because its connection is closed."""


class TlsStream(asyncio.Transport, asyncio.BufferedProtocol):
    """The TLS stream of one connection.

    `inner` gets `connection_made` at once, before the handshake, and received bytes only after the handshake has
    succeeded.
    """

    def __init__(
        self,
        inner: SecuredProtocol,
        owner: StreamOwner,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        raw_buffer: memoryview,
        server_name: str | None = None,
    ) -> None:
        """`server_name`: the host name of the node to which this node connects; None on the accepting side."""
        super().__init__()
        self._inner = inner
        self._owner: StreamOwner | None = owner
        """The owner; None once the connection is lost. The owner refers to the stream. A reference back would keep
        both, with OpenSSL's buffers, until a garbage collection, which may come much later.
        """
        self._handshakes = handshakes
        self._raw_buffer = raw_buffer
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_server = server_name is None
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=self._is_server, server_hostname=server_name
        )
        self._state = StreamState.HANDSHAKE
        self._transport: asyncio.Transport | None = None
        self._is_last_step_short = False
        """Whether the next step of the handshake is so short that it runs on the event loop."""
        self._is_reading = True
        self._is_decrypting = False
        self._is_writable = True
        self._unsent = UnsentBytes()
        self._is_warming = False
        """Whether an executor thread is reading the first piece into the page cache."""

    # The peer

    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER; None if it presented none."""
        return self._ssl.getpeercert(binary_form=True)

    def peer_chain(self) -> HandshakeChain | None:
        """The chain of the peer's certificate; None if it presented none."""
        if self._ssl.getpeercert(binary_form=True) is None:
            return None
        session = self._ssl.session if self._is_server else None
        session_id = b"" if session is None else session.id
        known = getattr(self._ssl, "get_verified_chain", None)
        if known is not None:  # Available from Python 3.13 on.
            return HandshakeChain(tuple(known()), session_id)
        chain = cast("Any", self._ssl)._sslobj.get_verified_chain()
        return HandshakeChain(tuple(ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in chain or ()), session_id)

    # Called by the raw transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=ENCRYPTED_SIZE_MAX)
        self._handshakes.begin(self)
        self._inner.connection_made(self)
        if not self._is_server and self._state is StreamState.HANDSHAKE:
            self._shake()

    def connection_lost(self, exc: Exception | None) -> None:
        was_shaking = self._state is StreamState.HANDSHAKE
        self._state = StreamState.CLOSED
        self._transport = None
        self._unsent.clear()
        self._handshakes.end(self)
        owner, self._owner = self._owner, None
        assert owner is not None
        if was_shaking:
            owner.not_secured(self, "the peer closed the connection during the TLS handshake")
        owner.lost(self)
        self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._raw_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._raw_buffer[:nbytes])
        if self._state is StreamState.OPEN:
            self._decrypt()
        elif self._state is StreamState.HANDSHAKE:
            if self._is_last_step_short:
                self._shaken(_handshake_step(self._ssl))
            else:
                self._shake()

    def pause_writing(self) -> None:
        if self._is_writable:
            self._is_writable = False
            if self._state is StreamState.OPEN and not self._is_warming:
                self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._is_writable:
            return
        self._is_writable = True
        self._go_on()

    # The handshake

    def _shake(self) -> None:
        """Run one step of the handshake in a thread. The transport is not read meanwhile, so that only that thread uses
        the buffers.
        """
        assert self._transport is not None
        self._transport.pause_reading()
        self._handshakes.step(self, partial(_handshake_step, self._ssl), self._shaken)

    def _shaken(self, error: BaseException | None) -> None:
        transport = self._transport
        if self._state is not StreamState.HANDSHAKE or transport is None:
            return  # The connection has ended in the meantime.
        flight = self._outgoing.read()
        if flight:
            transport.write(flight)
        if isinstance(error, ssl.SSLWantReadError):
            # The answer to it has no certificate then, and is verified in less time than a thread takes to start.
            self._is_last_step_short = (
                self._is_server and _is_full_flight(flight) and self._ssl.context.verify_mode is ssl.CERT_NONE
            )
            transport.resume_reading()
            return
        self._handshakes.end(self)
        if error is not None:
            self.give_up(_reason(error))
            return
        self._state = StreamState.OPEN
        assert self._owner is not None, "the connection is not lost"
        self._owner.secured(self)
        if self._state is not StreamState.OPEN:
            return
        if self._is_reading:
            transport.resume_reading()
        if not self._is_writable:
            self._inner.pause_writing()
        self._encrypt()
        self._decrypt()

    def give_up(self, reason: str) -> None:
        """Close the connection: its handshake failed or took too long, or there are too many handshakes."""
        if self._state is not StreamState.HANDSHAKE:
            return
        self._state = StreamState.CLOSED
        if self._owner is not None:
            self._owner.not_secured(self, reason)
        if self._transport is not None:
            self._transport.close()  # Send a pending alert to the peer.

    # Decrypting

    def _decrypt(self) -> None:
        """Decrypt the received bytes into the buffers of the inner protocol, in as few calls as possible."""
        if self._is_decrypting:
            return
        self._is_decrypting = True
        try:
            while self._is_reading and self._state is StreamState.OPEN and self._decrypt_once():
                pass
        finally:
            self._is_decrypting = False
        if self._outgoing.pending:
            self._send_encrypted()

    def _decrypt_once(self) -> bool:
        """Fill the buffer of the inner protocol once. Returns whether there may be more bytes to decrypt."""
        inner, incoming, tls = self._inner, self._incoming, self._ssl
        buffer = inner.get_buffer(-1)
        room, size = len(buffer), 0
        may_be_more = room > 0
        try:
            while size < room:
                count = tls.read(room - size, buffer[size:] if size else buffer)
                if not count:  # The peer closes the stream, and may wait for this side to do the same.
                    may_be_more = False
                    self._ended_by_peer()
                    break
                size += cast("int", count)
                # A read without data raises an exception, which takes longer than decrypting a small record.
                if not incoming.pending and not tls.pending():
                    may_be_more = False
                    break
        except ssl.SSLWantReadError:
            may_be_more = False
        except ssl.SSLError as error:
            may_be_more = False
            log.debug("a connection under TLS ends: %s", _reason(error))
            self._ended_by_peer()
        if size:
            inner.buffer_updated(size)
        return may_be_more

    def _ended_by_peer(self) -> None:
        """Close the stream in the next event loop iteration, because the peer closed it or sent bytes that are not TLS.
        Bytes that arrived before are still handled.
        """
        asyncio.get_running_loop().call_soon(self.close)

    # Encrypting

    def _encrypt(self) -> None:
        """Encrypt unsent bytes, as far as the transport accepts them."""
        unsent = self._unsent
        while (
            unsent
            and self._is_writable
            and not self._is_warming
            and self._state in (StreamState.OPEN, StreamState.CLOSING)
        ):
            try:
                piece = unsent.take_piece()
                if isinstance(piece, FileSlice):
                    self._warm(piece)
                    break
                self._ssl.write(piece)
            except OSError as error:  # An SSLError is one too.
                level = logging.DEBUG if isinstance(error, ssl.SSLError) else logging.INFO
                log.log(level, "a connection under TLS ends: %s", _reason(error))
                self.abort()
                return
            if self._outgoing.pending >= PIECE_SIZE_MAX or not unsent:
                self._send_encrypted()
        if not unsent:
            if self._state is StreamState.CLOSING:
                self._say_goodbye()
        elif self._is_warming:
            self._send_encrypted()

    def _go_on(self) -> None:
        """Continue to encrypt. If all unsent bytes were taken by the transport, the inner protocol may write again."""
        self._encrypt()
        if self._is_writable and not self._is_warming and self._state is StreamState.OPEN:
            self._inner.resume_writing()

    def _warm(self, place: FileSlice) -> None:
        """Read a slice into the page cache in an executor thread, then continue to encrypt."""
        self._is_warming = True
        if self._state is StreamState.OPEN:
            self._inner.pause_writing()
        reading = asyncio.get_running_loop().run_in_executor(None, place.warm)
        reading.add_done_callback(self._warmed)

    def _warmed(self, reading: asyncio.Future[None]) -> None:
        self._is_warming = False
        if reading.cancelled() or reading.exception() is not None:
            log.error("closing a connection: the records of its reply cannot be read: %s", reading)
            self.abort()
            return
        self._go_on()

    def _send_encrypted(self) -> None:
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _say_goodbye(self) -> None:
        self._state = StreamState.CLOSED
        with suppress(ssl.SSLError, ValueError):  # The peer's close_notify is not awaited.
            self._ssl.unwrap()
        self._send_encrypted()
        if self._transport is not None:
            self._transport.close()

    # The transport interface for the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        transport = self._transport
        if self._unsent or not self._is_writable or self._state is not StreamState.OPEN or len(data) > PIECE_SIZE_MAX:
            self.writelines((data,))
        elif data and transport is not None:
            try:
                self._ssl.write(data)
            except ssl.SSLError as error:
                log.debug("a connection under TLS ends: %s", _reason(error))
                self.abort()
                return
            transport.write(self._outgoing.read())

    def writelines(self, pieces: Iterable[Chunk]) -> None:
        if self._state in (StreamState.CLOSING, StreamState.CLOSED):
            return
        for piece in pieces:
            self._unsent.put(piece)
        if self._state is StreamState.OPEN:
            self._encrypt()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            if self._transport is not None and self._state is StreamState.OPEN:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading or self._state is not StreamState.OPEN or self._transport is None:
            return
        self._is_reading = True
        self._decrypt()  # Late decrypted bytes may pause the protocol again.
        if self._is_reading and self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._state is StreamState.OPEN:
            self._state = StreamState.CLOSING
            if self._transport is not None:
                self._transport.pause_reading()
            self._encrypt()
        elif self._state is StreamState.HANDSHAKE:
            self._state = StreamState.CLOSED
            self.abort()

    def abort(self) -> None:
        self._state = StreamState.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._state in (StreamState.CLOSING, StreamState.CLOSED)

    def get_write_buffer_size(self) -> int:
        return self._unsent.held_size + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "ssl_object":
            return self._ssl
        if name == "sslcontext":
            return self._ssl.context
        if name == TAKES_FILES:
            return True
        return default if self._transport is None else self._transport.get_extra_info(name, default)


def _handshake_step(tls: ssl.SSLObject) -> BaseException | None:
    """Run the handshake until it needs bytes of the peer. Returns None once it is complete, or the exception that ended
    the step: `SSLWantReadError` if it needs bytes.
    """
    try:
        tls.do_handshake()
    except (ssl.SSLError, ValueError, OSError) as error:
        # The traceback refers to the executor's frame, which has this result: a cycle, with OpenSSL's buffers.
        return error.with_traceback(None)
    return None


def _is_full_flight(flight: bytes) -> bool:
    """Whether `flight` is all that a server sends in a TLS 1.3 handshake: the records after its hello are encrypted."""
    hello_size = 5 + int.from_bytes(flight[3:5], "big")
    return len(flight) >= FULL_FLIGHT_SIZE_MIN and flight[hello_size : hello_size + 1] in _NOT_PLAIN


def _reason(error: BaseException) -> str:
    """OpenSSL's message for an error, without the source file and line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the peer closed the connection"
    return str(getattr(error, "reason", None) or error)


class UnsentBytes:
    """A queue of bytes and slices of files that are not encrypted yet. It is false when it is empty.

    `take_piece` takes pieces of a limited size from it. A slice of a file holds no memory: a piece of it is read when
    it is taken, if the page cache has it.
    """

    __slots__ = ("_chunks", "held_size")

    def __init__(self) -> None:
        self._chunks: deque[memoryview | FileSlice] = deque()
        """The chunks in order; none of them is empty."""
        self.held_size = 0
        """The number of bytes in the queue that are in memory."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Add bytes, or a slice of a file, at the end."""
        size = len(chunk)
        if not size:
            return
        if isinstance(chunk, FileSlice):
            self._chunks.append(chunk)
        else:
            self._chunks.append(memoryview(cast("BytesLike", chunk)))
            self.held_size += size

    def take_piece(self) -> BytesLike | FileSlice:
        """Take the next piece. Raises OSError if the piece cannot be read from its file.

        If its bytes are not in the page cache, nothing is taken. Then the result is the slice that has to be read from
        the disk first.
        """
        chunks = self._chunks
        first = chunks[0]
        size = len(first)
        wanted = min(size, PIECE_SIZE_MAX)
        if isinstance(first, FileSlice):
            place = first.position
            found = first.file.pread_cached(wanted, place)
            if found is None:
                return first
            if len(found) < wanted:
                raise OSError("the file has become shorter than what was promised of it")
            if size > wanted:
                chunks[0] = FileSlice(first.open_file, place + wanted, size - wanted)
            else:
                chunks.popleft()
            return found
        self.held_size -= wanted
        if size > wanted:
            chunks[0] = first[wanted:]
            return first[:wanted]
        return chunks.popleft()

    def clear(self) -> None:
        """Drop all bytes."""
        self._chunks.clear()
        self.held_size = 0
