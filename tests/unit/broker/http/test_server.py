"""The HTTP server over the simulated network: what is answered, what is refused, and who is too slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

import pytest

from moldau.broker.config.listeners import HttpAddress, read_http_address
from moldau.broker.http.server import (
    CHANGE_TIMEOUT_S,
    CONNECTIONS_MAX,
    HEAD_SIZE_MAX,
    SEND_TIMEOUT_S,
    UNSENT_SIZE_MAX,
    HttpRequest,
    HttpResponse,
    HttpServer,
    plain_response,
)
from moldau.broker.runtime.tasks import Tasks
from moldau.testing.simulation.world import SimulatedEnvironment, World

HOST, PORT = "broker-1", 9464


async def greet(request: HttpRequest) -> HttpResponse:
    return plain_response(200, "hello")


async def echo(request: HttpRequest) -> HttpResponse:
    return plain_response(200, f"{request.variables['name']} {request.query} {request.body.decode()}")


async def fail(request: HttpRequest) -> HttpResponse:
    raise ValueError


async def odd(request: HttpRequest) -> HttpResponse:
    """A text, or a header, that cannot be sent."""
    answer = plain_response(200, "\udcff" if request.query == {} else "even")
    return answer._replace(headers=(("Allow", "\r\n"),) if request.query else ())


class Slow:
    """A handler that does not end, and knows how often it was cancelled."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        self.begun += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return plain_response(200, "never")


def server(environment: SimulatedEnvironment, slow: Slow | None = None) -> HttpServer:
    resources = {"/": {"GET": greet}, "/things/{name}": {"PUT": echo, "DELETE": fail}, "/odd": {"GET": odd}}
    if slow is not None:
        resources["/slow"] = {"GET": slow, "POST": slow}
    spawn = Tasks(environment.halt).spawn
    return HttpServer(asyncio.get_running_loop(), resources, spawn, body_size_max=10)


def talk(conversation: Callable[[], Awaitable[None]], slow: Slow | None = None) -> None:
    """Hold a conversation with a server that greets at `/`."""
    with World(1) as world:
        host = world.add_host(HOST)

        async def serve(environment: SimulatedEnvironment) -> None:
            await server(environment, slow).start(HttpAddress("", PORT), "the test")
            await asyncio.get_running_loop().create_future()

        host.boot(serve)
        world.run(_after_a_moment(conversation), limit_s=100)


async def _after_a_moment(conversation: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(0.1)
    await conversation()


async def said(request: bytes) -> str:
    reader, writer = await asyncio.open_connection(HOST, PORT)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def test_a_get_is_answered_and_the_connection_closed() -> None:
    async def conversation() -> None:
        head, _, body = (await said(b"GET /?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")).partition("\r\n\r\n")
        assert head.splitlines()[0] == "HTTP/1.1 200 OK"
        assert "Content-Length: 6" in head and "Connection: close" in head
        assert body == "hello\n"
        assert (await said(b"HEAD / HTTP/1.0\r\n\r\n")).endswith("\r\n\r\n")

    talk(conversation)


TOO_LARGE = f"413 {HTTPStatus(413).phrase}"
"""CPython 3.13 has the words of RFC 9110."""


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n", "404 Not Found"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405 Method Not Allowed"),
        (b"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (
            b"PUT /things/a HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n12345678901",
            TOO_LARGE,
        ),
        (b"DELETE /things/a HTTP/1.1\r\nHost: a\r\n\r\n", "500 Internal Server Error"),
        (b"GET /odd HTTP/1.1\r\nHost: a\r\n\r\n", "500 Internal Server Error"),
        (b"GET /odd?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "500 Internal Server Error"),
        (b"\x16\x03\x01 hello\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/2\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_SIZE_MAX, "431 Request Header Fields Too Large"),
        (b"GET /?" + b"x&" * HEAD_SIZE_MAX + b" HTTP/1.1\r\nHost: a\r\n\r\n", "431 Request Header Fields Too Large"),
    ],
)
def test_what_is_not_served_is_said(request_head: bytes, status: str) -> None:
    async def conversation() -> None:
        assert (await said(request_head)).startswith(f"HTTP/1.1 {status}\r\n")

    talk(conversation)


def test_a_request_may_come_in_pieces() -> None:
    async def conversation() -> None:
        reader, writer = await asyncio.open_connection(HOST, PORT)
        for piece in (b"GET / HT", b"TP/1.1\r\nHost: a\r\n", b"\r", b"\n"):
            writer.write(piece)
            await asyncio.sleep(0.01)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")

    talk(conversation)


def test_a_resource_gets_the_variables_of_its_path_the_query_and_the_body() -> None:
    async def conversation() -> None:
        head = b"PUT /things/a%20b?x=1&y=%C3%A4 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
        assert (await said(head + b"body")).endswith("a b {'x': '1', 'y': 'ä'} body\n")

    talk(conversation)


def test_who_says_nothing_is_cut_off() -> None:
    async def conversation() -> None:
        reader, writer = await asyncio.open_connection(HOST, PORT)
        writer.write(b"GET / HTTP/1.1\r\n")
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionError):
            assert await reader.read() == b""
            raise ConnectionResetError
        assert SEND_TIMEOUT_S - 0.1 <= asyncio.get_running_loop().time() - began < SEND_TIMEOUT_S + 1

    talk(conversation)


def test_a_probe_is_answered_while_others_hold_all_connections() -> None:
    with World(1) as world:
        host, crowd, prober = world.add_host(HOST), world.add_host("crowd"), world.add_host("prober")
        answers: list[str] = []
        kept: list[asyncio.StreamReader] = []

        async def serve(environment: SimulatedEnvironment) -> None:
            await server(environment).start(HttpAddress("", PORT), "the test")
            await asyncio.get_running_loop().create_future()

        async def hold(environment: SimulatedEnvironment) -> None:
            await asyncio.sleep(0.1)
            writers = []
            for _ in range(CONNECTIONS_MAX):
                reader, writer = await asyncio.open_connection(HOST, PORT)
                kept.append(reader)
                writers.append(writer)
            await asyncio.sleep(5)

        async def probe(environment: SimulatedEnvironment) -> None:
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_connection(HOST, PORT)
            _, second = await asyncio.open_connection(HOST, PORT)  # It takes the place of one of the crowd, too.
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answers.append((await reader.read()).decode())
            second.close()

        host.boot(serve)
        crowd.boot(hold)
        prober.boot(probe)
        world.run(asyncio.sleep(4), limit_s=100)
        assert answers[0].endswith("hello\n")
        assert [reader.at_eof() or reader.exception() is not None for reader in kept] == [True] * 2 + [False] * 30


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("http://[::1]:9464/", ("::1", 9464)),
        ("http://:9464", ("", 9464)),
        ("https://127.0.0.1:9464", None),
        ("127.0.0.1:9464", None),
        ("http://127.0.0.1:99999", None),
        ("http://a:1/metrics", None),
        ("", None),
    ],
)
def test_an_address_is_read_or_refused(text: str, address: tuple[str, int] | None) -> None:
    assert read_http_address(text) == address


@pytest.mark.parametrize(("method", "cancelled"), [("GET", 1), ("POST", 0)])
def test_a_request_that_changes_nothing_ends_with_its_connection(method: str, cancelled: int) -> None:
    slow = Slow()

    async def conversation() -> None:
        _, writer = await asyncio.open_connection(HOST, PORT)
        writer.write(f"{method} /slow HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await asyncio.sleep(1)
        assert (slow.begun, slow.cancelled) == (1, 0)
        writer.close()
        await asyncio.sleep(1)
        assert slow.cancelled == cancelled

    talk(conversation, slow)


class Late(Slow):
    """A handler that ends after half a minute."""

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(30)
        return plain_response(200, "done")


def test_a_change_may_take_as_long_as_its_requests_to_the_cluster() -> None:
    async def conversation() -> None:
        assert (await said(b"POST /slow HTTP/1.1\r\nHost: a\r\n\r\n")).endswith("done\n")
        with pytest.raises(ConnectionError):
            assert await said(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") == ""
            raise ConnectionResetError

    talk(conversation, Late())


def test_a_change_without_an_end_is_cut_off() -> None:
    async def conversation() -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionError):
            assert await said(b"POST /slow HTTP/1.1\r\nHost: a\r\n\r\n") == ""
            raise ConnectionResetError
        assert CHANGE_TIMEOUT_S <= asyncio.get_running_loop().time() - began < CHANGE_TIMEOUT_S + 1

    talk(conversation, Slow())


class Holder:
    """A connection whose client has not taken some bytes."""

    def __init__(self, unsent: int) -> None:
        self.unsent = unsent
        self.is_closed = False

    def give_up(self) -> None:
        self.is_closed = True


def test_clients_that_do_not_read_hold_a_limited_number_of_bytes() -> None:
    async def story() -> None:
        held = HttpServer(asyncio.get_running_loop(), {}, Tasks(lambda reason: None).spawn)
        few, most, none = Holder(1000), Holder(UNSENT_SIZE_MAX - 2000), Holder(0)
        held.connections = cast("Any", dict.fromkeys((few, most, none)))
        held.make_room_for(1000)
        assert not (few.is_closed or most.is_closed)
        held.make_room_for(1001)
        assert (few.is_closed, most.is_closed, none.is_closed) == (False, True, False)

    asyncio.run(story())
