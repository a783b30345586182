"""A session of TLS 1.2 that a client resumes counts as much as a full handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

from moldau.broker.config.tls import ClientAuth
from moldau.broker.network.peer_security import NodeTls
from moldau.broker.network.tls.contexts import ReloadingTls, make_contexts
from moldau.broker.network.tls.handshakes import Handshakes
from moldau.protocol.compiler import encoder_of
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.primitives import Chunk
from tests.support.certificates import ENDS, Authority
from tests.support.secured_listener import HEARTBEAT, SecuredListener
from tests.support.tls_pair import settings_of

ONE, OTHER = Authority("one"), Authority("other")
NODE = ONE.issue("node", "127.0.0.1")
CLIENT = OTHER.issue("client")
EXPIRED_MS = int(ENDS.timestamp()) * 1000


class Client:
    """A client under TLS 1.2 that can resume the session of another one."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1", session=session)

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self._do(self.tls.do_handshake)

    async def is_served(self) -> bool:
        """Whether the listener answers a request; False if it has closed the connection."""
        pieces: list[Chunk] = []
        encoder_of(HeartbeatRequest, 0)(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), pieces)
        body = b"".join(bytes(cast("bytes", each)) for each in pieces)
        header = HEARTBEAT.to_bytes(2, "big") + bytes(2) + bytes(4) + b"\xff\xff"
        self.tls.write((len(header) + len(body)).to_bytes(4, "big") + header + body)
        try:
            return bool(await self._do(lambda: self.tls.read(1 << 16)))
        except (ssl.SSLError, ConnectionError):
            return False

    async def is_closed(self) -> bool:
        return not await self._do(lambda: self.tls.read(1))

    async def _do(self, call: Callable[[], object]) -> object:
        while True:
            try:
                result = call()
            except ssl.SSLWantReadError:
                self._writer.write(self._outgoing.read())
                received = await self._reader.read(1 << 16)
                if received:
                    self._incoming.write(received)
                else:
                    self._incoming.write_eof()
            else:
                self._writer.write(self._outgoing.read())
                return result

    def close(self) -> None:
        self._writer.close()


def test_a_removed_authority_and_an_expired_certificate_end_resumed_sessions_too(tmp_path: Path) -> None:
    async def offload(work: Callable[[], object]) -> object:
        return work()

    async def story() -> None:
        now_ms = 0
        loop = asyncio.get_running_loop()
        trust = ONE.trust_store(tmp_path / "trust.pem", OTHER)
        tls = ReloadingTls(settings_of(NODE, trust, ClientAuth.REQUIRED), lambda: now_ms)
        listener = SecuredListener(loop, NodeTls(tls, Handshakes(loop), memoryview(bytearray(1 << 16))))
        await listener.open()
        context = make_contexts(settings_of(CLIENT, ONE, protocols=("TLSv1.2",))).client
        clients = [Client(context)]
        await clients[0].connect(listener.port)
        assert await clients[0].is_served()
        for _ in range(2):
            clients.append(Client(context, clients[0].tls.session))
            await clients[-1].connect(listener.port)
        assert [each.tls.session_reused for each in clients] == [False, True, True]
        assert await clients[1].is_served()
        now_ms = EXPIRED_MS
        clients.append(Client(context, clients[0].tls.session))
        await clients[-1].connect(listener.port)
        assert clients[-1].tls.session_reused and not await clients[-1].is_served()
        (tmp_path / "new").write_text(ONE.certificate_pem)
        (tmp_path / "new").rename(trust)
        await tls.check_files(offload)
        assert [await each.is_closed() for each in clients[:3]] == [True, True, True]
        for each in clients:
            each.close()
        await listener.close()

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await story()

    asyncio.run(bounded())
