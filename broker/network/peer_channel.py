"""A channel to another node: it sends requests and receives replies, over a connection that is made on demand.

    idle ──ask──▶ connecting ──▶ greeting (ApiVersions) ──▶ login ──▶ open ──broken, silent for too long──▶ idle

TLS and the login are used if the listener of the peer requires them (`PeerSecurity`). Before the lifetime
of a login's session is over, the channel re-authenticates (KIP-368); requests that are asked meanwhile wait for it.

Requests are sent in the order of the calls of `ask`, several in flight at once, and their replies arrive in this order.
Each request is sent in the newest version that both sides serve, or in the older one that the caller names. The
callback of each request is called exactly once. If there is no response, it gets a `NoResponseReason`: the peer may
have handled the request or not, and the caller decides whether to repeat it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Final, cast

from moldau.broker.network.memory import receive_buffer
from moldau.broker.network.peer_security import NotSecured, PeerLogin, PeerSecurity
from moldau.broker.purgatory.timer_wheel import Timeout, Timeouts
from moldau.protocol.compiler import Decoder, Encoder, decoder_of, encoder_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import CLIENT_ID_POSITION, SIZED_REQUEST_HEAD, request_header
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.primitives import BytesLike, Chunk, MalformedMessage, skip_tags
from moldau.protocol.schema import header_flexible_from, response_class_of, spec_of

log = logging.getLogger("moldau.peer")

ResponseCallback = Callable[[object], None]
"""Called once, on the event loop, with the response or a `NoResponseReason`. The byte fields of the response are views
of the receive buffer, and valid during the call only.
"""
RECEIVE_BUFFER_SIZE: Final = 1 << 20
CONNECT_TIMEOUT_S: Final = 5.0
GREETING_VERSION: Final = 3
RENEWED_AFTER: Final = 0.85
"""The fraction of the lifetime of a login's session after which the channel re-authenticates."""
REPLY_SIZE_MAX: Final = 1 << 28
PARTIAL_SIZE_FIRST: Final = 1 << 12
_SIZES: Final = struct.Struct(">ii").unpack_from


class NoResponseReason(Enum):
    """Why there is no response to a request."""

    DISCONNECTED = auto()
    """The connection was refused, or it broke."""
    NO_ADDRESS = auto()
    """The metadata names no address of the broker, so that nothing was sent."""
    TIMED_OUT = auto()
    """No reply arrived within the timeout."""
    REFUSED = auto()
    """The peer does not serve this API, does not accept this node, or sent something other than a reply. Or this node
    closed the channel.
    """


class PendingRequest:
    """A request that has no response yet, with its callback and its timeout."""

    __slots__ = ("reply", "request", "timeout", "version")

    def __init__(self, request: object, reply: ResponseCallback, timeout: Timeout, version: int | None) -> None:
        self.request = request
        self.reply = reply
        self.timeout = timeout
        self.version = version
        """The version in which the request is sent; None for the newest one."""


class RequestCodec:
    """The encoder for requests of one class to a peer, and the decoder for their replies. It is made once for each
    connection.
    """

    __slots__ = ("decode", "encode", "has_reply_tags", "header_end", "key", "version")

    def __init__(self, request_class: type[object], version: int, client_id: bytes) -> None:
        spec = spec_of(request_class)
        assert spec.key is not None, "only requests are sent"
        answer_class = response_class_of(request_class)
        self.key = spec.key
        self.version = version
        self.header_end = request_header(request_class, version, 0, client_id)[CLIENT_ID_POSITION:]
        """The bytes of the request header after the correlation id."""
        self.encode: Encoder[object] = encoder_of(request_class, version)
        self.decode: Decoder[object] = decoder_of(answer_class, version)
        self.has_reply_tags = version >= header_flexible_from(answer_class)


class InFlight:
    """A request that was sent and has no reply yet, with its codec."""

    __slots__ = ("codec", "correlation_id", "pending")

    def __init__(self, correlation_id: int, codec: RequestCodec, pending: PendingRequest) -> None:
        self.correlation_id = correlation_id
        self.codec = codec
        self.pending = pending


class PeerChannels:
    """The channels of one node to other nodes, which share a receive buffer.

    There is one channel for each purpose and address, so that a long poll does not delay urgent requests.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        client_id: str,
        software_version: str,
        security: PeerSecurity | None = None,
    ) -> None:
        """`security`: how this node connects to the listeners of its peers; None for PLAINTEXT."""
        self.loop = loop
        self.security = security
        self.timeouts = timeouts
        self.client_id = client_id.encode()
        self.software_version = software_version
        self.buffer = receive_buffer(RECEIVE_BUFFER_SIZE)
        self._channels: dict[tuple[str, str, int], PeerChannel] = {}

    def to(self, purpose: str, host: str, port: int) -> PeerChannel:
        """The channel to an address for one purpose; it is created at first use."""
        key = (purpose, host, port)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = PeerChannel(self, host, port)
        return channel

    def close(self, purpose: str | None = None) -> None:
        """Close all channels, or those of one purpose."""
        for key in [key for key in self._channels if purpose in (None, key[0])]:
            self._channels.pop(key).close()


class PeerChannel:
    """A channel to one address for one purpose."""

    def __init__(self, channels: PeerChannels, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._channels = channels
        self._queue: deque[PendingRequest] = deque()
        """The requests that wait until the connection is open."""
        self._link: PeerLink | None = None
        self._versions: Mapping[int, tuple[int, int]] | None = None
        """The versions (first, last) of each API that the peer serves, by API key; None until its ApiVersions
        response.
        """
        self._codecs: dict[tuple[type[object], int | None], RequestCodec] = {}
        """The codecs that this connection has used, by request class and requested version."""
        self._connecting: asyncio.Task[None] | None = None
        self._login: PeerLogin | None = None

    def ask(self, request: object, reply: ResponseCallback, timeout_ms: int, version: int | None = None) -> None:
        """Send a request: in `version`, or if that is None in the newest version that both sides serve. `reply` is
        called later, never within this call.
        """
        timeout = self._channels.timeouts.call_after(timeout_ms, self._timed_out)
        self._queue.append(PendingRequest(request, reply, timeout, version))
        if self._link is None and self._connecting is None:
            self._connecting = self._channels.loop.create_task(self._connect())
        elif self._versions is not None:
            self._send_queued()

    def close(self) -> None:
        """Close the connection. The callback of each queued or unanswered request is called later with
        `NoResponseReason.REFUSED`.
        """
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._fail(NoResponseReason.REFUSED, "closed here")

    async def _connect(self) -> None:
        link = PeerLink(self, self._channels.buffer)
        is_connected = False
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._reach(link)
            is_connected = True
        except NotSecured as error:
            self._connecting = None
            self._refused(str(error))
            return
        except (OSError, ValueError, TimeoutError) as error:
            self._connecting = None
            why = NoResponseReason.TIMED_OUT if isinstance(error, TimeoutError) else NoResponseReason.DISCONNECTED
            self._fail(why, f"cannot connect: {error or 'no answer'}")
            return
        finally:
            if not is_connected:
                link.abandon()  # It may be connected, and in its TLS handshake.
        self._connecting = None
        self._link = link
        greeting = ApiVersionsRequest(
            client_software_name="moldau", client_software_version=self._channels.software_version
        )
        timeout = self._channels.timeouts.call_after(int(CONNECT_TIMEOUT_S * 1000), self._timed_out)
        codec = RequestCodec(ApiVersionsRequest, GREETING_VERSION, self._channels.client_id)
        link.send(PendingRequest(greeting, self._greeted, timeout, GREETING_VERSION), codec)

    async def _reach(self, link: PeerLink) -> None:
        """Connect to the first address of the peer's name that accepts the connection. Raises OSError, ValueError if
        no peer can have this name, and `NotSecured` if the peer cannot be trusted.

        The name is resolved here, so that a cancellation ends the lookup. uvloop's own lookup within
        `create_connection` continues after a cancellation, and its error is never retrieved.
        """
        loop, security = self._channels.loop, self._channels.security
        refusal = OSError(f"{self.host} has no address")
        for _, _, _, _, address in await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            secured = None if security is None else security.secured(link, self.host, loop)
            protocol = link if secured is None else secured.stream
            try:
                await loop.create_connection(partial(_given, protocol), *_host_and_port(address))
                if secured is not None:
                    await secured.handshake
            except OSError as error:
                refusal = error
            else:
                return
        raise refusal

    def _greeted(self, response: object) -> None:
        if isinstance(response, NoResponseReason):
            return  # The link has failed, and so has its channel.
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code != ErrorCode.NONE:
            self._fail(NoResponseReason.REFUSED, f"the peer refused to greet: error {response.error_code}")
            return
        versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        security = self._channels.security
        if security is None or security.mechanism is None:
            self._versions = versions
            self._send_queued()
            return
        self._login = PeerLogin(self, security.mechanism, versions)
        self._login.begin()

    # Called by the login

    def send_login(self, request: object, reply: ResponseCallback, version: int) -> None:
        """Send a request of the SASL login. Queued requests wait until the login has succeeded."""
        assert self._link is not None
        self._versions = None
        timeout = self._channels.timeouts.call_after(int(CONNECT_TIMEOUT_S * 1000), self._timed_out)
        codec = RequestCodec(type(request), version, self._channels.client_id)
        self._link.send(PendingRequest(request, reply, timeout, version), codec)

    def logged_in(self, versions: Mapping[int, tuple[int, int]], session_ms: int) -> None:
        """Send the queued requests: the login succeeded. The channel re-authenticates after `RENEWED_AFTER` of the
        session's lifetime; a `session_ms` of 0 stands for a session without a limit.
        """
        self._versions = versions
        login = self._login
        if session_ms and login is not None:
            self._channels.loop.call_later(session_ms * RENEWED_AFTER / 1000, self._renew, login)
        self._send_queued()

    def login_failed(self, reason: str) -> None:
        """Close the connection, because the peer refused the login. The callback of each queued or unanswered request
        is called later with `NoResponseReason.REFUSED`.
        """
        self._refused(reason)

    def _renew(self, login: PeerLogin) -> None:
        if self._login is login and self._link is not None:
            login.begin()

    def _refused(self, reason: str) -> None:
        log.warning("%s:%d does not accept this node: %s", self.host, self.port, reason)
        self._fail(NoResponseReason.REFUSED, reason)

    def _send_queued(self) -> None:
        link = self._link
        assert link is not None
        while self._queue:
            pending = self._queue.popleft()
            codec = self._codec(type(pending.request), pending.version)
            if codec is None:
                log.warning(
                    "%s:%d supports no version of %s that this node sends",
                    self.host,
                    self.port,
                    type(pending.request).__name__,
                )
                pending.timeout.cancel()
                self._channels.loop.call_soon(pending.reply, NoResponseReason.REFUSED)
                continue
            link.send(pending, codec)

    def _codec(self, request_class: type[object], wanted: int | None) -> RequestCodec | None:
        """Return the codec of the newest version that both sides serve, or of `wanted` if that version is older.
        Returns None if both sides serve no such version.
        """
        codec = self._codecs.get((request_class, wanted))
        if codec is not None:
            return codec
        assert self._versions is not None, "the peer has not said what it speaks"
        spec = spec_of(request_class)
        first, last = self._versions.get(spec.key or 0, (0, -1))
        version = min(last, spec.versions.last if wanted is None else wanted)
        if version < max(first, spec.versions.first):
            return None
        codec = self._codecs[request_class, wanted] = RequestCodec(request_class, version, self._channels.client_id)
        return codec

    def lost(self, link: PeerLink, why: NoResponseReason, reason: str) -> None:
        """Note that a link has ended. If the channel still uses it, the callback of each queued or unanswered request
        is called later with `why`. An earlier link is ignored.
        """
        if link is self._link:
            self._fail(why, reason)

    def _timed_out(self) -> None:
        self._fail(NoResponseReason.TIMED_OUT, "no answer in time")

    def _fail(self, why: NoResponseReason, reason: str) -> None:
        """Close the connection. The callback of each queued or unanswered request is called later with `why`. The next
        request connects again.
        """
        link, self._link, self._versions, self._login = self._link, None, None, None
        self._codecs.clear()
        given_up = [*(link.abandon() if link is not None else ()), *self._queue]
        self._queue.clear()
        if given_up:
            log.debug("%s:%d: %s; %d requests given up", self.host, self.port, reason, len(given_up))
        for pending in given_up:
            pending.timeout.cancel()
            self._channels.loop.call_soon(pending.reply, why)


class PeerLink(asyncio.BufferedProtocol):
    """One connection of a channel: sends request frames and receives reply frames."""

    def __init__(self, channel: PeerChannel, shared: memoryview) -> None:
        self._channel = channel
        self._shared = shared
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[InFlight] = deque()
        self._correlation_id = 0
        self._own = memoryview(b"")
        self._partial: memoryview | None = None
        self._partial_size = 0

    def send(self, pending: PendingRequest, codec: RequestCodec) -> None:
        transport = self._transport
        assert transport is not None, "a link that was never made, or is lost"
        self._correlation_id = correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        chunks: list[Chunk] = [b"", codec.header_end]
        codec.encode(pending.request, chunks)
        size = CLIENT_ID_POSITION + sum(map(len, chunks))
        chunks[0] = SIZED_REQUEST_HEAD.pack(size, codec.key, codec.version, correlation_id)
        self._in_flight.append(InFlight(correlation_id, codec, pending))
        transport.write(b"".join(cast("list[BytesLike]", chunks)))

    def abandon(self) -> list[PendingRequest]:
        """Close the link. Returns the requests that were sent and have no reply."""
        waiting = [each.pending for each in self._in_flight]
        self._in_flight.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        return waiting

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._channel.lost(self, NoResponseReason.DISCONNECTED, f"connection lost: {exc or 'closed by the peer'}")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared if self._partial is None else self._partial[self._partial_size :]

    def buffer_updated(self, nbytes: int) -> None:
        partial = self._partial
        try:
            if partial is None:
                self._consume(self._shared, nbytes)
            else:
                self._partial_size += nbytes
                self._partial = None
                self._consume(partial, self._partial_size)
        except MalformedMessage as error:
            log.warning("a malformed reply of %s:%d: %s", self._channel.host, self._channel.port, error)
            self._channel.lost(self, NoResponseReason.REFUSED, "a malformed reply")

    def _consume(self, buffer: memoryview, size: int) -> None:
        position = 0
        while size - position >= 8 and self._transport is not None:
            frame_size, correlation_id = _SIZES(buffer, position)
            if not 4 <= frame_size <= REPLY_SIZE_MAX:
                raise MalformedMessage(f"a reply of {frame_size} bytes")
            end = position + 4 + frame_size
            if end > size:
                break
            self._answered(buffer[position + 8 : end], correlation_id)
            position = end
        if position < size and self._transport is not None:
            self._keep(buffer, position, size)

    def _keep(self, buffer: memoryview, position: int, size: int) -> None:
        """Move the beginning of a reply to this connection's own buffer, which grows to the largest reply and stays as
        large.
        """
        left = size - position
        wanted = max(4 + _SIZES(buffer, position)[0] if left >= 8 else 0, PARTIAL_SIZE_FIRST)
        rest = buffer[position:size]
        if len(self._own) < wanted:
            self._own = memoryview(bytearray(wanted))
        self._own[:left] = rest
        self._partial, self._partial_size = self._own[:wanted], left

    def _answered(self, body: memoryview, correlation_id: int) -> None:
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            raise MalformedMessage(f"a reply to request {correlation_id}, which is not the oldest")
        sent = self._in_flight[0]
        try:
            response, _ = sent.codec.decode(body, skip_tags(body, 0) if sent.codec.has_reply_tags else 0)
        except IndexError:
            raise MalformedMessage("a reply without the end of its header") from None
        self._in_flight.popleft()  # Only now: the callback of a request whose reply is malformed is called, too.
        sent.pending.timeout.cancel()
        sent.pending.reply(response)


def _given(protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return protocol


def _host_and_port(address: tuple[object, ...]) -> tuple[str, int]:
    """Host and port of a socket address. The host of a link-local IPv6 address has its scope."""
    host, port, *flow_and_scope = address
    assert isinstance(host, str) and isinstance(port, int)
    return (f"{host}%{flow_and_scope[1]}" if flow_and_scope and flow_and_scope[1] else host), port
