"""The channels of a node to others under TLS and with a login, over the loopback of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from moldau.broker.config.tls import ClientAuth, TlsSettings
from moldau.broker.network import peer_channel
from moldau.broker.network.listener_security import AuthenticationCounts, ListenerSecurity, plain_security
from moldau.broker.network.peer_channel import NoResponseReason, PeerChannels
from moldau.broker.network.peer_security import NodeTls, PeerSecurity
from moldau.broker.network.tls.contexts import ReloadingTls
from moldau.broker.network.tls.handshakes import Handshakes
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.security.access import Unrestricted
from moldau.security.principal import Principal
from tests.support.certificates import Authority
from tests.support.secured_listener import SecuredListener
from tests.support.tls_pair import settings_of
from tests.support.word_mechanism import WordClient, WordMechanism

AUTHORITY, OTHER = Authority("root"), Authority("other")
NODE = AUTHORITY.issue("node", "localhost", "127.0.0.1")
STRANGER = OTHER.issue("stranger", "127.0.0.1")
Story = Callable[[SecuredListener, PeerChannels], Awaitable[None]]


def tls(settings: TlsSettings, loop: asyncio.AbstractEventLoop) -> NodeTls:
    return NodeTls(
        ReloadingTls(settings, LocalEnvironment(loop).wall_ms), Handshakes(loop), memoryview(bytearray(1 << 16))
    )


async def ask(channels: PeerChannels, port: int, host: str = "127.0.0.1") -> object:
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    channels.to("test", host, port).ask(request, answered.set_result, 10_000)
    return await answered


def talk(
    story: Story, *, server: TlsSettings | None, client: TlsSettings | None, login: WordClient | None = None
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        mechanisms = {"WORD": WordMechanism} if login is not None else None
        listener = SecuredListener(loop, None if server is None else tls(server, loop), mechanisms)
        await listener.open()
        security = PeerSecurity(None if client is None else tls(client, loop), None if login is None else lambda: login)
        channels = PeerChannels(loop, Timeouts(loop), "test", "4.3.1", security)
        try:
            async with asyncio.timeout(20):
                await story(listener, channels)
        finally:
            channels.close()
            await listener.close()

    asyncio.run(run())


def server_settings(client_auth: ClientAuth = ClientAuth.NONE) -> TlsSettings:
    return settings_of(NODE, AUTHORITY, client_auth)


async def served(listener: SecuredListener, channels: PeerChannels) -> None:
    assert isinstance(await ask(channels, listener.port), HeartbeatResponse)
    assert isinstance(await ask(channels, listener.port), HeartbeatResponse)
    assert listener.connections_made == 1


async def refused(listener: SecuredListener, channels: PeerChannels) -> None:
    assert isinstance(await ask(channels, listener.port), NoResponseReason)


def test_requests_go_under_tls() -> None:
    talk(served, server=server_settings(), client=settings_of(None, AUTHORITY))


def test_a_node_is_known_by_its_certificate() -> None:
    async def story(listener: SecuredListener, channels: PeerChannels) -> None:
        await served(listener, channels)
        assert listener.principals == [Principal("User", "O=Tests,CN=node")]

    talk(story, server=server_settings(ClientAuth.REQUIRED), client=settings_of(NODE, AUTHORITY))


def test_a_node_logs_in_before_its_requests() -> None:
    async def story(listener: SecuredListener, channels: PeerChannels) -> None:
        await served(listener, channels)
        assert listener.principals == [Principal("User", "broker-2")]

    talk(story, server=None, client=None, login=WordClient("broker-2"))
    talk(story, server=server_settings(), client=settings_of(None, AUTHORITY), login=WordClient("broker-2"))


def test_a_node_that_is_not_let_in_has_no_response() -> None:
    talk(refused, server=None, client=None, login=WordClient("broker-2", knows=False))
    talk(refused, server=server_settings(ClientAuth.REQUIRED), client=settings_of(None, AUTHORITY))


def test_a_peer_that_cannot_be_trusted_gets_no_request() -> None:
    async def story(listener: SecuredListener, channels: PeerChannels) -> None:
        await refused(listener, channels)
        assert listener.handled == 0

    talk(story, server=settings_of(STRANGER, OTHER), client=settings_of(None, AUTHORITY))


def test_the_name_of_the_peer_is_checked_unless_the_setting_says_otherwise() -> None:
    elsewhere = AUTHORITY.issue("elsewhere", "elsewhere.example")
    talk(refused, server=settings_of(elsewhere, AUTHORITY), client=settings_of(None, AUTHORITY))
    talk(
        served,
        server=settings_of(elsewhere, AUTHORITY),
        client=settings_of(None, AUTHORITY, checks_host_names=False),
    )


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_handshake_that_is_given_up_leaves_no_connection(monkeypatch: pytest.MonkeyPatch, is_closed: bool) -> None:
    monkeypatch.setattr(peer_channel, "CONNECT_TIMEOUT_S", 20.0 if is_closed else 0.1)
    ended: asyncio.Queue[None] = asyncio.Queue()
    accepted = asyncio.Event()

    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        ended.put_nowait(None)

    async def story(listener: SecuredListener, channels: PeerChannels) -> None:
        server = await asyncio.start_server(answer_nothing, "127.0.0.1", 0)
        asking = asyncio.create_task(ask(channels, server.sockets[0].getsockname()[1]))
        if is_closed:
            await accepted.wait()
            channels.close()
        assert await asking is (NoResponseReason.REFUSED if is_closed else NoResponseReason.TIMED_OUT)
        await asyncio.wait_for(ended.get(), 5)
        server.close()

    talk(story, server=None, client=settings_of(None, AUTHORITY))


def test_a_plain_listener_shares_one_access() -> None:
    security = plain_security()
    assert security.first_access("192.0.2.1") is security.first_access("192.0.2.2")
    made = ListenerSecurity(lambda principal, host: Unrestricted(principal), AuthenticationCounts())
    assert made.first_access("192.0.2.1").is_unrestricted
