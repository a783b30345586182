"""A way to another node: requests out, replies in, over a connection that is made when there is something to ask.

    idle ──ask──▶ connecting ──▶ greeting (ApiVersions) ──▶ open ──broken, silent for too long──▶ idle

Requests leave in the order in which they were asked, each in the newest version that both sides speak unless its asker
names an older one, several in flight at once; replies come in that order. Whatever goes wrong, each request gets
exactly one reply: a `NoAnswer` where there is none, and nobody knows then whether the peer has acted. Asking again is
the caller's decision.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, cast

from broker.purgatory.timer_wheel import Timeout, Timeouts
from protocol.compiler import Decoder, Encoder, decoder_of, encoder_of
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.primitives import BytesLike, Chunk, MalformedMessage
from protocol.schema import header_flexible_from, response_class_of, spec_of
from protocol.tagged_section import skip_tags

log = logging.getLogger("moldau.peer")

Reply = Callable[[object], None]
"""Called once, on the loop, with the response or a `NoAnswer`. What the response's byte fields show is there during the
call only: they are views of the receive buffer."""
RECEIVE_BUFFER_SIZE: Final = 1 << 20
CONNECT_TIMEOUT_S: Final = 5.0
GREETING_VERSION: Final = 3
REPLY_SIZE_MAX: Final = 1 << 28
PARTIAL_SIZE_FIRST: Final = 1 << 12
_SIZES: Final = struct.Struct(">ii").unpack_from
_HEAD: Final = struct.Struct(">ihhi").pack


class NoAnswer(Enum):
    """Why there is no response."""

    GONE = auto()
    """The connection was refused or broke: whoever was there is gone."""
    SILENT = auto()
    """Nothing came in time."""
    REFUSED = auto()
    """The peer does not speak this API, or talks nonsense; or this node closed the channel."""


class Asked:
    """A request under way; the timeout ends the wait."""

    __slots__ = ("reply", "request", "timeout", "version")

    def __init__(self, request: object, reply: Reply, timeout: Timeout, version: int | None) -> None:
        self.request = request
        self.reply = reply
        self.timeout = timeout
        self.version = version
        """In which it is to be sent; None is the newest."""


class Wording:
    """How requests of one class are put for a peer, and how it replies: found once for a connection."""

    __slots__ = ("decode", "encode", "has_reply_tags", "header_end", "key", "version")

    def __init__(self, request_class: type[object], version: int, client_id: bytes) -> None:
        spec = spec_of(request_class)
        assert spec.key is not None, "only requests are sent"
        answer_class = response_class_of(request_class)
        self.key = spec.key
        self.version = version
        self.header_end = struct.pack(">h", len(client_id)) + client_id + b"\0" * (version in spec.flexible)
        """What follows the correlation id."""
        self.encode: Encoder[object] = encoder_of(request_class, version)
        self.decode: Decoder[object] = decoder_of(answer_class, version)
        self.has_reply_tags = version >= header_flexible_from(answer_class)


class InFlight:
    """A request that was sent: how its reply is read, and who waits for it."""

    __slots__ = ("asked", "correlation_id", "wording")

    def __init__(self, correlation_id: int, wording: Wording, asked: Asked) -> None:
        self.correlation_id = correlation_id
        self.wording = wording
        self.asked = asked


class PeerChannels:
    """Channels of one node, which share a receive buffer; one for each purpose and peer, so that no long poll stands in
    the way of what is urgent."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts, client_id: str, software_version: str
    ) -> None:
        self.loop = loop
        self.timeouts = timeouts
        self.client_id = client_id.encode()
        self.software_version = software_version
        self.buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        self._channels: dict[tuple[str, str, int], PeerChannel] = {}

    def to(self, purpose: str, host: str, port: int) -> PeerChannel:
        """The channel for a purpose to an address, made where there is none."""
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
    """To one address, for one purpose."""

    def __init__(self, channels: PeerChannels, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._channels = channels
        self._queue: deque[Asked] = deque()
        """Not sent yet: the connection is being made."""
        self._link: PeerLink | None = None
        self._versions: Mapping[int, tuple[int, int]] | None = None
        """Of each API what the peer speaks; None until it has said so."""
        self._wordings: dict[tuple[type[object], int | None], Wording] = {}
        """For that peer."""
        self._connecting: asyncio.Task[None] | None = None

    def ask(self, request: object, reply: Reply, timeout_ms: int, version: int | None = None) -> None:
        """Send a request; `reply` is called later, never within this call."""
        timeout = self._channels.timeouts.after(timeout_ms, self._hear_nothing)
        self._queue.append(Asked(request, reply, timeout, version))
        if self._link is None and self._connecting is None:
            self._connecting = self._channels.loop.create_task(self._connect())
        elif self._versions is not None:
            self._send_queued()

    def close(self) -> None:
        """Give up what is under way."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._fail(NoAnswer.REFUSED, "closed here")

    async def _connect(self) -> None:
        link = PeerLink(self, self._channels.buffer)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._reach(link)
        except (OSError, TimeoutError) as error:
            self._connecting = None
            why = NoAnswer.SILENT if isinstance(error, TimeoutError) else NoAnswer.GONE
            self._fail(why, f"cannot connect: {error or 'no answer'}")
            return
        self._connecting = None
        self._link = link
        greeting = ApiVersionsRequest(
            client_software_name="moldau", client_software_version=self._channels.software_version
        )
        timeout = self._channels.timeouts.after(int(CONNECT_TIMEOUT_S * 1000), self._hear_nothing)
        wording = Wording(ApiVersionsRequest, GREETING_VERSION, self._channels.client_id)
        link.send(Asked(greeting, self._greeted, timeout, GREETING_VERSION), wording)

    async def _reach(self, link: PeerLink) -> None:
        """Connect to the first address of the peer's name that takes the connection. Raises OSError.

        The name is looked up here, so that giving up takes the question back. uvloop's own look-up within
        `create_connection` goes on, and nobody hears its refusal.
        """
        loop = self._channels.loop
        refusal = OSError(f"{self.host} has no address")
        for _, _, _, _, address in await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            try:
                await loop.create_connection(lambda: link, *_host_and_port(address))
            except OSError as error:
                refusal = error
            else:
                return
        raise refusal

    def _greeted(self, response: object) -> None:
        if isinstance(response, NoAnswer):
            return  # the link has failed, and its channel with it
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code != ErrorCode.NONE:
            self._fail(NoAnswer.REFUSED, f"the peer refused to greet: error {response.error_code}")
            return
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._send_queued()

    def _send_queued(self) -> None:
        link = self._link
        assert link is not None
        while self._queue:
            asked = self._queue.popleft()
            wording = self._wording(type(asked.request), asked.version)
            if wording is None:
                log.warning("%s:%d does not speak our %s", self.host, self.port, type(asked.request).__name__)
                asked.timeout.cancel()
                self._channels.loop.call_soon(asked.reply, NoAnswer.REFUSED)
                continue
            link.send(asked, wording)

    def _wording(self, request_class: type[object], wanted: int | None) -> Wording | None:
        """In the newest version that both speak, or an older one that is wanted; None where there is none."""
        wording = self._wordings.get((request_class, wanted))
        if wording is not None:
            return wording
        assert self._versions is not None, "the peer has not said what it speaks"
        spec = spec_of(request_class)
        first, last = self._versions.get(spec.key or 0, (0, -1))
        version = min(last, spec.versions.last if wanted is None else wanted)
        if version < max(first, spec.versions.first):
            return None
        wording = self._wordings[request_class, wanted] = Wording(request_class, version, self._channels.client_id)
        return wording

    def lost(self, link: PeerLink, why: NoAnswer, reason: str) -> None:
        """The link has ended."""
        if link is self._link:
            self._fail(why, reason)

    def _hear_nothing(self) -> None:
        self._fail(NoAnswer.SILENT, "no answer in time")

    def _fail(self, why: NoAnswer, reason: str) -> None:
        """Whoever waits learns that there is no answer; the next request connects anew."""
        link, self._link, self._versions = self._link, None, None
        self._wordings.clear()
        given_up = [*(link.abandon() if link is not None else ()), *self._queue]
        self._queue.clear()
        if given_up:
            log.debug("%s:%d: %s; %d requests given up", self.host, self.port, reason, len(given_up))
        for asked in given_up:
            asked.timeout.cancel()
            self._channels.loop.call_soon(asked.reply, why)


class PeerLink(asyncio.BufferedProtocol):
    """One connection: frames out and in."""

    def __init__(self, channel: PeerChannel, shared: memoryview) -> None:
        self._channel = channel
        self._shared = shared
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[InFlight] = deque()
        self._correlation_id = 0
        self._own = memoryview(b"")
        self._partial: memoryview | None = None
        self._partial_size = 0

    def send(self, asked: Asked, wording: Wording) -> None:
        transport = self._transport
        assert transport is not None, "a link that was never made, or is lost"
        self._correlation_id = correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        chunks: list[Chunk] = [b"", wording.header_end]
        wording.encode(asked.request, chunks)
        size = 8 + sum(map(len, chunks))
        chunks[0] = _HEAD(size, wording.key, wording.version, correlation_id)
        self._in_flight.append(InFlight(correlation_id, wording, asked))
        transport.write(b"".join(cast("list[BytesLike]", chunks)))

    def abandon(self) -> list[Asked]:
        """Close; who still waits."""
        waiting = [each.asked for each in self._in_flight]
        self._in_flight.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        return waiting

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._channel.lost(self, NoAnswer.GONE, f"connection lost: {exc or 'closed by the peer'}")

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
            self._channel.lost(self, NoAnswer.REFUSED, "a malformed reply")

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
        """Move the beginning of a reply to the link's own buffer, which grows to the largest reply and stays."""
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
        sent = self._in_flight.popleft()
        response, _ = sent.wording.decode(body, skip_tags(body, 0) if sent.wording.has_reply_tags else 0)
        sent.asked.timeout.cancel()
        sent.asked.reply(response)


def _host_and_port(address: tuple[object, ...]) -> tuple[str, int]:
    """Of a socket address, with the scope of a link-local one."""
    host, port, *flow_and_scope = address
    assert isinstance(host, str) and isinstance(port, int)
    return (f"{host}%{flow_and_scope[1]}" if flow_and_scope and flow_and_scope[1] else host), port
