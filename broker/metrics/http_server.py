"""A small HTTP server: GET of a few fixed paths, one request for each connection, all sizes limited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, cast

from moldau.broker.config.listeners import HttpAddress
from moldau.broker.runtime.tasks import Spawn

HEAD_SIZE_MAX: Final = 8192
PATIENCE_S: Final = 10
CONNECTIONS_MAX: Final = 32
"""The most connections. A scraper needs one, and a probe another.

For one more, the oldest connection of the address with the most connections is closed. So a probe is answered while
clients at other addresses hold all connections.
"""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


Handler = Callable[[], Awaitable[Answer]]


def plain(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", text + "\n")


class HttpServer:
    """The server. `paths` maps each path to its handler. `spawn` runs a coroutine under supervision."""

    def __init__(self, loop: asyncio.AbstractEventLoop, paths: Mapping[str, Handler], spawn: Spawn) -> None:
        self.paths = paths
        self.spawn = spawn
        self.loop = loop
        self.connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, address: HttpAddress) -> None:
        """Bind and serve. Raises OSError."""
        try:
            self._server = await self.loop.create_server(
                lambda: HttpConnection(self), address.host or None, address.port, reuse_address=True
            )
        except OSError as error:
            where = f"{address.host or '*'}:{address.port} for moldau.http.listener"
            raise OSError(
                error.errno, f"cannot listen on {where}: {(error.strerror or '').rpartition(': ')[2]}"
            ) from None

    def make_room(self) -> None:
        """Make room for one more connection where there are as many as there may be."""
        if len(self.connections) < CONNECTIONS_MAX:
            return
        counts: dict[str, int] = {}
        for each in self.connections:
            counts[each.address] = counts.get(each.address, 0) + 1
        most = max(counts.values())
        oldest = next(each for each in self.connections if counts[each.address] == most)
        del self.connections[oldest]
        oldest.give_up()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.close()


class HttpConnection(asyncio.Protocol):
    """Reads the head of one request, responds, and closes."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.address = ""
        self._head = b""
        self._is_asked = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self._server.make_room()
        self._server.connections[self] = None
        self._timer = self._server.loop.call_later(PATIENCE_S, self.give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_asked:
            return  # The rest is a body or a second request; the server handles one request for each connection.
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if end or len(self._head) > HEAD_SIZE_MAX:
            self._is_asked = True
            self._head = b""
            if len(head) > HEAD_SIZE_MAX:
                self._answer(plain(431, "the request is too large"))
            else:
                self._ask(head)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def give_up(self) -> None:
        """Close the connection: the client sends its request, or reads the response, too slowly, or another connection
        needs the place.
        """
        if self._transport is not None:
            self._transport.abort()

    def _ask(self, head: bytes) -> None:
        line = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            self._answer(plain(400, "this is not HTTP/1"))
            return
        method, target, _ = line
        handler = self._server.paths.get(target.partition("?")[0])
        if handler is None:
            self._answer(plain(404, "here are " + ", ".join(self._server.paths)))
        elif method not in ("GET", "HEAD"):
            self._answer(plain(405, "only GET is answered"))
        else:
            self._server.spawn(self._respond(handler, is_head=method == "HEAD"), "http")

    async def _respond(self, handler: Handler, *, is_head: bool) -> None:
        self._answer(await handler(), is_head=is_head)

    def _answer(self, answer: Answer, *, is_head: bool = False) -> None:
        if self._transport is None:
            return
        body = answer.body.encode()
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n"
            + ("Allow: GET, HEAD\r\n" if answer.status == 405 else "")
            + "\r\n"
        )
        self._transport.write(head.encode() + (b"" if is_head else body))
        self._transport.close()
