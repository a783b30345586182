"""A server's sockets: held back, let go, and without descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.runtime.acceptor import ACCEPTS_MAX, FILE_DESCRIPTORS_DIVISOR, SocketAcceptor

HOST = "127.0.0.1"
PATIENCE_S = 10


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


class AcceptPolicy:
    def __init__(self, send_buffer_size: int = -1) -> None:
        self.send_buffer_size = send_buffer_size
        self.is_open = True
        self.stays = True
        self.closing_s = 0.0
        self.entered: list[str] = []
        self.failures = 0
        self.met = asyncio.Event()

    def may_accept(self) -> bool:
        if not self.is_open:
            self.met.set()
        return self.is_open

    def accepted(self, address: str) -> float | None:
        self.entered.append(address)
        return None if self.stays else self.closing_s

    def gone(self, address: str) -> None:
        self.entered.remove(address)

    def accept_failed(self) -> None:
        self.failures += 1
        self.met.set()

    def protocol_for(self, address: str) -> asyncio.BaseProtocol:
        return Greeter()


Story = Callable[[SocketAcceptor, AcceptPolicy, int], Awaitable[None]]


def run(story: Story, descriptors_max: int = 1 << 20) -> None:
    async def told() -> None:
        policy = AcceptPolicy()
        acceptor = SocketAcceptor(asyncio.get_running_loop(), policy, descriptors_max)
        await acceptor.bind(HOST, 0)
        port = acceptor._sockets[0].getsockname()[1]
        try:
            await asyncio.wait_for(story(acceptor, policy, port), PATIENCE_S)
        finally:
            acceptor.close()

    asyncio.run(told())


async def read_all(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    data = await reader.read()
    writer.close()
    return data


def test_nobody_is_accepted_before_it_opens_and_after_it_closes() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        with pytest.raises(ConnectionRefusedError):
            await read_all(port)
        acceptor.open()
        assert await read_all(port) == b"hello"
        assert policy.entered == [HOST]
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            await read_all(port)

    run(story)


def test_who_comes_while_the_door_is_closed_waits() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        policy.is_open = False
        acceptor.open()
        reading = asyncio.create_task(read_all(port))
        await policy.met.wait()
        assert not reading.done() and policy.entered == []
        policy.is_open = True
        acceptor.release()
        assert await reading == b"hello"

    run(story)


def test_who_may_not_stay_is_hung_up_on() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        policy.stays = False
        acceptor.open()
        assert await read_all(port) == b""

    run(story)


def test_without_descriptors_it_waits_a_moment_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        acceptor.open()
        reading = asyncio.create_task(read_all(port))
        await policy.met.wait()
        acceptor._try_again()
        while policy.failures < 2:
            await asyncio.sleep(0)
        acceptor.release()
        assert not acceptor._is_reading, "nobody but the timer tries again"
        acceptor._last_descriptor = 1 << 20
        acceptor._try_again()
        assert await reading == b"hello"
        assert policy.failures == 2

    with caplog.at_level(logging.INFO, "moldau.listener"):
        run(story, descriptors_max=FILE_DESCRIPTORS_DIVISOR)
    assert [record.getMessage() for record in caplog.records] == [
        f"no new connections for now: [Errno {errno.EMFILE}] the rest of the descriptors is for files",
        "connections are accepted again",
    ]


def test_an_address_in_use_is_named() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        acceptor.open()
        other = SocketAcceptor(asyncio.get_running_loop(), policy, 1 << 20)
        with pytest.raises(OSError, match=f"cannot listen on {HOST}:{port}: Address already in use"):
            await other.bind(HOST, port)

    run(story)


def test_every_family_of_a_wildcard_is_served() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        everywhere = SocketAcceptor(asyncio.get_running_loop(), policy, 1 << 20)
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        await everywhere.bind(None, port)
        everywhere.open()
        assert await read_all(port) == b"hello"
        everywhere.close()

    run(story)


def test_who_was_accepted_and_not_yet_begun_is_hung_up_on_when_it_closes() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        acceptor.open()
        with socket.create_connection((HOST, port)) as client:
            client.setblocking(False)
            while not acceptor._beginnings:
                acceptor._accept(acceptor._sockets[0])
            acceptor.close()
            assert await asyncio.get_running_loop().sock_recv(client, 100) == b""
            assert not acceptor._beginnings

    run(story)


def test_a_burst_of_connections_lets_others_have_their_turn() -> None:
    async def story(acceptor: SocketAcceptor, policy: AcceptPolicy, port: int) -> None:
        acceptor.open()
        clients = [socket.create_connection((HOST, port)) for _ in range(ACCEPTS_MAX + 1)]
        acceptor._accept(acceptor._sockets[0])
        assert len(policy.entered) == ACCEPTS_MAX
        while len(policy.entered) < len(clients):
            await asyncio.sleep(0)
        for each in clients:
            each.close()

    run(story)


def test_accepted_sockets_have_the_send_buffer_that_the_policy_asks_for() -> None:
    async def accepted_size(policy: AcceptPolicy) -> int:
        sizes: asyncio.Queue[int] = asyncio.Queue()

        class Sized(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                own = transport.get_extra_info("socket")
                sizes.put_nowait(own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))

        policy.protocol_for = lambda address: Sized()  # type: ignore[method-assign]
        acceptor = SocketAcceptor(asyncio.get_running_loop(), policy, 1 << 20)
        await acceptor.bind(HOST, 0)
        acceptor.open()
        _, writer = await asyncio.open_connection(HOST, acceptor._sockets[0].getsockname()[1])
        size = await asyncio.wait_for(sizes.get(), PATIENCE_S)
        writer.close()
        acceptor.close()
        return size

    asked = 50_000
    assert asyncio.run(accepted_size(AcceptPolicy(asked))) == 2 * asked  # the kernel doubles it, for its own needs
    assert asyncio.run(accepted_size(AcceptPolicy())) != 2 * asked
