"""Two protocols on this machine with a TLS stream on each side of their connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from moldau.broker.config.setting import Password
from moldau.broker.config.tls import ClientAuth, StoreSettings, TlsSettings
from moldau.broker.network.tls.contexts import TlsContexts, make_contexts
from moldau.broker.network.tls.handshakes import Handshakes
from moldau.broker.network.tls.stream import TlsStream
from tests.support.certificates import Authority, Issued


class Talker(asyncio.BufferedProtocol):
    """Keeps what it receives, in a buffer of `room` bytes at a time; `echoes` sends it back."""

    def __init__(self, room: int = 1 << 16, *, echoes: bool = False) -> None:
        self._buffer = memoryview(bytearray(room))
        self._echoes = echoes
        self.received = bytearray()
        self.calls = 0
        self.is_writable = True
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.changed.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.calls += 1
        self.received += self._buffer[:nbytes]
        self.changed.set()
        if self._echoes and self.transport is not None:
            self.transport.write(bytes(self._buffer[:nbytes]))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Side:
    """One side of the connection, with the result of its handshake."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self.stream: TlsStream | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Empty if the handshake succeeded, else the error."""

    def secured(self, stream: TlsStream) -> None:
        self.stream = stream
        self.ended.set_result("")

    def not_secured(self, stream: TlsStream, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    def lost(self, stream: TlsStream) -> None:
        pass


def settings_of(
    key: Issued | None,
    trusted: Authority | Path | None,
    client_auth: ClientAuth = ClientAuth.NONE,
    *,
    key_file: Path | None = None,
    checks_host_names: bool = True,
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
    cipher_suites: tuple[str, ...] = (),
) -> TlsSettings:
    """Settings with these stores: texts in the settings, or files."""
    trust_text = Password(trusted.certificate_pem) if isinstance(trusted, Authority) else None
    trust_file = str(trusted) if isinstance(trusted, Path) else None
    chain = Password(key.certificate_pem) if key is not None else None
    secret = Password(key.key_pem()) if key is not None else None
    return TlsSettings(
        "TEST",
        StoreSettings(
            "keystore",
            "PEM",
            None if key_file is None else str(key_file),
            "ssl.keystore.location",
            None,
            chain,
            "ssl.keystore.certificate.chain",
            secret,
        ),
        StoreSettings(
            "truststore",
            "PEM",
            trust_file,
            "ssl.truststore.location",
            None,
            trust_text,
            "ssl.truststore.certificates",
            None,
        ),
        None,
        client_auth,
        protocols,
        cipher_suites,
        checks_host_names,
        "DEFAULT",
        False,
        False,
    )


def contexts_of(
    key: Issued | None, trusted: Authority | None, client_auth: ClientAuth = ClientAuth.NONE
) -> TlsContexts:
    return make_contexts(settings_of(key, trusted, client_auth))


async def connect(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    story: Callable[[Side, Side], Awaitable[None]],
    *,
    server_talker: Callable[[], Talker] = Talker,
    client_talker: Callable[[], Talker] = Talker,
    server_name: str = "127.0.0.1",
) -> None:
    """Run a story with the server's side and the client's; the client's connection is open, not yet secured."""
    loop = asyncio.get_running_loop()
    handshakes, buffer = Handshakes(loop), memoryview(bytearray(1 << 17))
    there: asyncio.Future[Side] = loop.create_future()

    def accepted() -> TlsStream:
        side = Side(server_talker())
        there.set_result(side)
        return TlsStream(side.talker, side, server, handshakes, buffer)

    listening = await loop.create_server(accepted, "127.0.0.1", 0)
    here = Side(client_talker())
    port = listening.sockets[0].getsockname()[1]
    await loop.create_connection(
        lambda: TlsStream(here.talker, here, client, handshakes, buffer, server_name), "127.0.0.1", port
    )
    try:
        await story(await there, here)
    finally:
        for side in (await there, here):
            if side.talker.transport is not None:
                side.talker.transport.abort()
        with suppress(TimeoutError):
            await asyncio.wait_for((await there).talker.lost.wait(), 5)
        listening.close()
    assert handshakes.count == 0
