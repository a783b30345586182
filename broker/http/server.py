"""A small HTTP/1.1 server over h11: a table of resources, one request on each connection, and limits on all sizes.

bytes ──▶ h11 ──▶ HttpRequest ──▶ handler of the path and the method ──▶ HttpResponse ──▶ h11 ──▶ bytes, close
                                                                     └──▶ StreamResponse ──▶ h11 ──▶ pieces, close
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

import h11

from moldau.broker.config.listeners import HttpAddress, LocalAddress
from moldau.broker.runtime.tasks import Spawn

log = logging.getLogger("moldau.http")

HEAD_SIZE_MAX: Final = 8192
READING: Final = ("GET", "HEAD")
UNSENT_SIZE_MAX: Final = 1 << 25
"""The maximum number of bytes of answers that clients have not taken. Above it, the connection with the most such bytes
is closed.
"""
SEND_TIMEOUT_S: Final = 10
"""The time (s) after which a connection is closed. It begins anew with the response to a request that changes
something. A stream only ends if its client has not read for this time.
"""
CHANGE_TIMEOUT_S: Final = 60
"""The time (s) after which the connection of a request that changes something is closed if there is no response. It is
longer than the timeouts of the requests that the change sends to the cluster.
"""
CONNECTIONS_MAX: Final = 32
"""The maximum number of connections. A scraper needs one, and a probe another.

When one more connects, the address with the most connections loses its oldest one. So a probe is answered even if
clients at other addresses hold all connections.
"""


class HttpRequest(NamedTuple):
    """A request that was received completely."""

    method: str
    path: str
    variables: Mapping[str, str]
    """The variables of the resource's path template, such as `id` of `{id}`, with the parts of the path that replace
    them.
    """
    query: Mapping[str, str]
    """The query parameters. If a name is given twice, its last value counts."""
    headers: Mapping[str, str]
    """The header fields, by name in lower case."""
    body: bytes
    client_host: str = ""
    """The address of the client."""


class HttpResponse(NamedTuple):
    status: int
    content_type: str
    body: str | bytes
    headers: tuple[tuple[str, str], ...] = ()


class StreamResponse(NamedTuple):
    """A response whose pieces are sent when the iterator yields them, such as server-sent events. The iterator is
    closed if the client disconnects. A client that reads nothing for `SEND_TIMEOUT_S` seconds is disconnected.
    """

    content_type: str
    pieces: AsyncIterator[bytes]
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[HttpRequest], Awaitable["HttpResponse | StreamResponse"]]
Resources = Mapping[str, Mapping[str, Handler]]
"""The handlers by path template (such as `/v1/faults/{id}`) and by method."""


def host_of(request: HttpRequest) -> str:
    """The name or address in the Host field of a request, in lower case and without the port."""
    text = request.headers.get("host", "").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def plain_response(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", text + "\n")


def reason_phrase(status: int) -> str:
    """The reason phrase of a status code."""
    if status == 200:
        return "OK"
    from http import HTTPStatus  # 200 KB, for what most nodes never answer.

    return HTTPStatus(status).phrase


class HttpServer:
    """An HTTP server for some resources. A resource that answers GET also answers HEAD.

    `spawn` runs a coroutine as a supervised task. A body of more than `body_size_max` bytes is refused.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resources: Resources, spawn: Spawn, *, body_size_max: int = 0
    ) -> None:
        self.resources = resources
        self.spawn = spawn
        self.loop = loop
        self.body_size_max = body_size_max
        self.connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def start_local(self, address: LocalAddress) -> None:
        """Serve on a Unix socket, for processes of the same machine. Raises OSError."""
        self._server = await self.loop.create_unix_server(lambda: HttpConnection(self), address.path)

    async def start(self, address: HttpAddress, setting: str) -> int:
        """Bind the address and serve. Returns the port. Raises OSError, whose message names `setting`: the setting or
        option that has the address.
        """
        try:
            self._server = await self.loop.create_server(
                lambda: HttpConnection(self), address.host or None, address.port, reuse_address=True
            )
        except OSError as error:
            where = f"{address.host or '*'}:{address.port} for {setting}"
            raise OSError(
                error.errno, f"cannot listen on {where}: {(error.strerror or '').rpartition(': ')[2]}"
            ) from None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def find_resource(self, path: str) -> tuple[Mapping[str, Handler], Mapping[str, str]] | None:
        """Find the resource whose path template matches a path. Returns its handlers by method, and the values of the
        variables in the path; None if no resource matches.
        """
        steps = path.split("/")
        for template, handlers in self.resources.items():
            wanted = template.split("/")
            if len(wanted) == len(steps) and all(
                want == step or (want.startswith("{") and step) for want, step in zip(wanted, steps, strict=True)
            ):
                pairs = zip(wanted, steps, strict=True)
                return handlers, {want[1:-1]: unquote(step) for want, step in pairs if want.startswith("{")}
        return None

    def close_surplus_connection(self) -> None:
        """Close a connection if there are `CONNECTIONS_MAX`: the oldest one of the client address that has the most
        connections.
        """
        if len(self.connections) < CONNECTIONS_MAX:
            return
        counts: dict[str, int] = {}
        for each in self.connections:
            counts[each.address] = counts.get(each.address, 0) + 1
        most = max(counts.values())
        oldest = next(each for each in self.connections if counts[each.address] == most)
        del self.connections[oldest]
        oldest.give_up()

    def make_room_for(self, size: int) -> None:
        """Make room for a response of `size` bytes: close the connections with the most unsent bytes, until `size` and
        the unsent bytes of all connections are together at most `UNSENT_SIZE_MAX`.
        """
        unsent = {each: each.unsent for each in self.connections if each.unsent}
        while unsent and sum(unsent.values()) + size > UNSENT_SIZE_MAX:
            most = max(unsent, key=lambda each: unsent[each])
            del unsent[most]
            most.give_up()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.close()


class HttpConnection(asyncio.Protocol):
    """One connection: reads a request, sends the response, and closes."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.address = ""
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_SIZE_MAX)
        self._head: h11.Request | None = None
        self._head_size = 0
        """The number of bytes that were received before the head of the request was complete."""
        self._body = bytearray()
        self._is_asked = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[object] | None = None
        """The task of a handler that changes nothing (GET or HEAD), which is cancelled when the connection ends."""
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self._server.close_surplus_connection()
        self._server.connections[self] = None
        self._give_up_after(SEND_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._reading is not None:
            self._reading.cancel()
        self._writable.set()
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._is_asked:
            return  # The server handles one request for each connection.
        try:
            if self._head is None:
                data = self._read_head(data)
            if data and not self._is_asked:
                self._h11.receive_data(data)
                self._read_events()
        except h11.RemoteProtocolError as error:
            self._refuse(plain_response(error.error_status_hint, str(error)))

    @property
    def unsent(self) -> int:
        """The number of bytes of the response that the client has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def give_up(self) -> None:
        """Close the connection at once, because the client is too slow, or because its place is needed for another
        connection.
        """
        if self._transport is not None:
            self._transport.abort()

    def _give_up_after(self, seconds: float) -> None:
        """Start the timer of the connection, or start it anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.loop.call_later(seconds, self.give_up)

    def _read_head(self, data: bytes) -> bytes:
        """Parse received bytes up to the size limit of the head. Returns the bytes past the limit. h11 itself refuses a
        long head only if it arrives in pieces. Raises `RemoteProtocolError`.
        """
        room = HEAD_SIZE_MAX - self._head_size
        self._head_size += len(data)
        if room > 0:
            self._h11.receive_data(data[:room])
            self._read_events()
        if self._head is None and self._head_size > HEAD_SIZE_MAX and not self._is_asked:
            raise h11.RemoteProtocolError("the head is too long", error_status_hint=431)
        return data[max(room, 0) :]

    def _read_events(self) -> None:
        """Parse the request as far as it has arrived, and handle it once it is complete. Raises
        `RemoteProtocolError`.
        """
        while not self._is_asked:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._head = event
                if self._h11.they_are_waiting_for_100_continue and self._transport is not None:
                    continues = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                    self._transport.write(self._h11.send(continues) or b"")
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._server.body_size_max:
                    self._refuse(plain_response(413, f"the body is longer than {self._server.body_size_max} bytes"))
            elif isinstance(event, h11.EndOfMessage):
                assert self._head is not None, "a message begins with its head"
                self._ask(self._head)
            else:
                return

    def _ask(self, head: h11.Request) -> None:
        self._is_asked = True
        method = head.method.decode()
        path, _, query = head.target.decode().partition("?")
        found = self._server.find_resource(path)
        if found is None:
            self._answer(plain_response(404, "here are " + ", ".join(self._server.resources)))
            return
        handlers, variables = found
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            allowed = ", ".join([*handlers, "HEAD"] if "GET" in handlers else handlers)
            self._answer(plain_response(405, f"here are {allowed}")._replace(headers=(("Allow", allowed),)))
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        fields = dict(parse_qsl(query, keep_blank_values=True))
        request = HttpRequest(method, path, variables, fields, headers, bytes(self._body), self.address)
        self._server.spawn(self._respond(handler, request), "http")

    async def _respond(self, handler: Handler, request: HttpRequest) -> None:
        if self._transport is None:
            return
        if request.method in READING:
            self._reading = asyncio.current_task()
        else:
            self._give_up_after(CHANGE_TIMEOUT_S)
        try:
            answer = await handler(request)
            if not isinstance(answer, StreamResponse):
                self._answer(answer)
                return
        except Exception:
            log.exception("the handler of %s %s failed", request.method, request.path)
            self._answer(plain_response(500, "the handler failed; the node's log has the reason"))
            return
        await self._send_stream(answer)

    async def _send_stream(self, stream: StreamResponse) -> None:
        """Send the pieces of a stream until it ends, or until the client leaves or does not read."""
        transport = self._transport
        if self._timer is not None:
            self._timer.cancel()
        try:
            if transport is None:
                return
            headers = [("Content-Type", stream.content_type), ("Connection", "close"), *stream.headers]
            head = h11.Response(status_code=200, headers=headers, reason=reason_phrase(200))
            transport.write(self._h11.send(head) or b"")
            if self._head is None or self._head.method != b"HEAD":
                async for piece in stream.pieces:
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await self._writable.wait()
                    if self._transport is None:
                        return
                    transport.write(self._h11.send(h11.Data(data=piece)) or b"")
            transport.write(self._h11.send(h11.EndOfMessage()) or b"")
            transport.close()
        except TimeoutError:
            self.give_up()
        except Exception:
            log.exception("a stream failed")
            self.give_up()
        finally:
            aclose = getattr(stream.pieces, "aclose", None)
            if aclose is not None:
                await aclose()

    def _refuse(self, answer: HttpResponse) -> None:
        """Answer a request without reading the rest of it."""
        self._is_asked = True
        self._answer(answer)

    def _answer(self, answer: HttpResponse) -> None:
        if self._transport is None:
            return
        if self._reading is None:
            self._give_up_after(SEND_TIMEOUT_S)
        body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *answer.headers,
        ]
        response = h11.Response(status_code=answer.status, headers=headers, reason=reason_phrase(answer.status))
        events: list[h11.Event] = [response, h11.EndOfMessage()]
        if self._head is None or self._head.method != b"HEAD":
            events.insert(1, h11.Data(data=body))
        self._server.make_room_for(len(body))
        self._transport.write(b"".join(self._h11.send(event) or b"" for event in events))
        self._transport.close()
