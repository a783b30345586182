"""A TLS stream carries bytes both ways, ends what it cannot trust, and holds little for a slow peer."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from functools import partial
from typing import Any

import pytest

from moldau.broker.config.tls import ClientAuth
from moldau.broker.network.tls.contexts import HandshakeChain, make_contexts
from moldau.broker.network.tls.handshakes import Handshakes
from moldau.broker.network.tls.stream import ENCRYPTED_SIZE_MAX, TlsStream
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.open_files import OpenFile
from tests.support.certificates import Authority
from tests.support.cold_file import ColdFile
from tests.support.tls_pair import Side, Talker, connect, contexts_of, settings_of

AUTHORITY = Authority("root")
OTHER = Authority("other")
SERVER = AUTHORITY.issue("server", "localhost", "127.0.0.1")
CLIENT = AUTHORITY.issue("client")


@pytest.mark.parametrize("room", [1000, 1 << 16, 1 << 20])
@pytest.mark.parametrize("size", [1, 16_384, 1_000_000])
def test_bytes_arrive_both_ways_whatever_the_buffer(room: int, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)

    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        assert client.talker.transport is not None
        client.talker.transport.write(data)
        await client.talker.until(lambda: len(client.talker.received) >= len(data))
        assert server.talker.received == client.talker.received == data

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(
        connect(
            contexts.server,
            contexts.client,
            story,
            server_talker=partial(Talker, room, echoes=True),
            client_talker=partial(Talker, room),
        )
    )


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_the_peer_is_known_by_its_certificate_and_by_what_it_is_trusted_for(protocol: str) -> None:
    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        assert server.stream is not None and client.stream is not None
        assert server.stream.peer_certificate() == CLIENT.der
        there, here = server.stream.peer_chain(), client.stream.peer_chain()
        assert there is not None and there.verified == (CLIENT.der, AUTHORITY.der)
        assert bool(there.session_id) is (protocol == "TLSv1.2")
        assert here == HandshakeChain((SERVER.der, AUTHORITY.der), b"")
        assert server.stream._ssl.version() == protocol
        assert server.stream.get_extra_info("sslcontext") is not None

    there = make_contexts(settings_of(SERVER, AUTHORITY, ClientAuth.REQUIRED, protocols=(protocol,)))
    assert there.server is not None
    asyncio.run(connect(there.server, contexts_of(CLIENT, AUTHORITY).client, story))


def test_without_a_certificate_the_client_is_let_in_where_one_is_only_requested() -> None:
    async def story(server: Side, client: Side) -> None:
        assert await server.ended == ""
        assert server.stream is not None
        assert server.stream.peer_certificate() is None and server.stream.peer_chain() is None

    there = contexts_of(SERVER, AUTHORITY, ClientAuth.REQUESTED)
    assert there.server is not None
    asyncio.run(connect(there.server, contexts_of(None, AUTHORITY).client, story))


@pytest.mark.parametrize(("client", "words"), [(None, "did not return"), (OTHER.issue("client"), "not accepted")])
def test_a_client_that_is_not_trusted_is_refused(client: object, words: str) -> None:
    async def story(server: Side, here: Side) -> None:
        reason = await server.ended
        assert words in reason.lower().replace("_", " "), reason
        await here.talker.lost.wait()

    there = contexts_of(SERVER, AUTHORITY, ClientAuth.REQUIRED)
    assert there.server is not None
    asyncio.run(connect(there.server, contexts_of(client, AUTHORITY).client, story))  # type: ignore[arg-type]


def test_a_server_of_another_name_or_another_authority_is_refused() -> None:
    async def story(server: Side, client: Side, words: str) -> None:
        reason = await client.ended
        assert words in reason, reason
        assert await server.ended

    there = contexts_of(SERVER, AUTHORITY)
    assert there.server is not None
    of_other = partial(story, words="self-signed certificate")
    asyncio.run(connect(there.server, contexts_of(None, OTHER).client, of_other))
    asyncio.run(connect(there.server, there.client, partial(story, words="mismatch"), server_name="elsewhere"))


def test_bytes_that_are_not_tls_end_the_connection() -> None:
    async def story(server: Side, client: Side) -> None:
        assert await server.ended == await client.ended == ""
        assert client.stream is not None and client.stream._transport is not None
        client.stream._transport.write(b"not tls at all" * 10)
        await server.talker.lost.wait()
        assert server.talker.received == b""

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(connect(contexts.server, contexts.client, story))


def test_what_a_slow_peer_leaves_waits_as_plain_bytes_and_leaves_later() -> None:
    data = b"x" * (20 << 20)

    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        there, here = server.talker, client.talker
        assert there.transport is not None and here.transport is not None
        here.transport.pause_reading()
        there.transport.write(data)
        await there.until(lambda: not there.is_writable or there.changed.is_set())
        assert not there.is_writable
        assert there.transport.get_write_buffer_size() > len(data) // 4
        here.transport.resume_reading()
        await here.until(lambda: len(here.received) == len(data))
        await there.until(lambda: there.is_writable)
        assert there.transport.get_write_buffer_size() < ENCRYPTED_SIZE_MAX

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(connect(contexts.server, contexts.client, story))


def test_a_peer_that_closes_is_answered_so_that_it_need_not_wait() -> None:
    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        assert client.stream is not None and client.stream._transport is not None
        with pytest.raises(ssl.SSLError):
            client.stream._ssl.unwrap()  # waits for the goodbye of the other side
        client.stream._transport.write(client.stream._outgoing.read())
        await client.talker.lost.wait()
        await server.talker.lost.wait()
        client.stream._ssl.unwrap()

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(connect(contexts.server, contexts.client, story))


def test_what_was_written_before_the_close_still_leaves() -> None:
    data = b"x" * (3 << 20)

    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        assert server.talker.transport is not None
        server.talker.transport.write(data)
        server.talker.transport.close()
        assert server.talker.transport.is_closing()
        await client.talker.lost.wait()
        assert client.talker.received == data

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(connect(contexts.server, contexts.client, story))


def test_slices_of_files_are_sent_in_order_and_cold_ones_are_read_by_a_thread() -> None:
    data = bytes(range(256)) * 4096
    file = ColdFile(data)

    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        assert server.stream is not None
        server.stream.writelines((b"head", FileSlice(OpenFile(file), 0, len(data)), b"tail"))
        assert not server.talker.is_writable, "the protocol does not write more while the disk is read"
        await client.talker.until(lambda: len(client.talker.received) == len(data) + 8)
        assert client.talker.received == b"head" + data + b"tail"
        assert file.warmed_count == 1
        await server.talker.until(lambda: server.talker.is_writable)

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(connect(contexts.server, contexts.client, story))


def test_a_slice_that_cannot_be_read_ends_the_connection() -> None:
    file = ColdFile(b"records" * 1000, OSError(5, "Input/output error"))

    async def story(server: Side, client: Side) -> None:
        assert await client.ended == await server.ended == ""
        assert server.stream is not None
        server.stream.writelines((b"head", FileSlice(OpenFile(file), 0, 7000)))
        await client.talker.lost.wait()

    contexts = contexts_of(SERVER, AUTHORITY)
    assert contexts.server is not None
    asyncio.run(connect(contexts.server, contexts.client, story))


class OwningSide(Side):
    """Refers to its stream from the beginning, as a connection of a listener does."""

    def __init__(self, talker: Talker, context: ssl.SSLContext, handshakes: Handshakes) -> None:
        super().__init__(talker)
        self.stream = TlsStream(talker, self, context, handshakes, memoryview(bytearray(1 << 17)))

    def secured(self, stream: TlsStream) -> None:
        stream.close()


class ForgetfulTalker(Talker):
    """Drops its transport at the end, as a connection does."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.transport = None


@pytest.mark.parametrize("sent", [b"not tls at all", b"\x16\x03\x01\x02\x00\x01", None])
def test_a_connection_that_ended_is_freed_without_a_garbage_collection(sent: bytes | None) -> None:
    """Collections are rare, and they do not count the 60 KB that OpenSSL holds for a connection."""
    contexts = contexts_of(SERVER, AUTHORITY)
    context = contexts.server
    assert context is not None
    kept: list[weakref.ref[ssl.SSLObject]] = []

    async def visit() -> None:
        handshakes = Handshakes(asyncio.get_running_loop())

        def accepted() -> TlsStream:
            stream = OwningSide(ForgetfulTalker(), context, handshakes).stream
            assert stream is not None
            kept.append(weakref.ref(stream._ssl))
            return stream

        listening = await asyncio.get_running_loop().create_server(accepted, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        secured = contexts.client if sent is None else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=secured)
        if sent is not None:
            writer.write(sent)
            writer.write_eof()
        while await reader.read(1 << 16):
            pass
        writer.close()
        async with asyncio.timeout(10):
            while kept[0]() is not None:
                await asyncio.sleep(0)
        listening.close()

    gc.disable()
    try:
        asyncio.run(visit())
    finally:
        gc.enable()


@pytest.mark.parametrize(("protocol", "wants", "steps"), [("TLSv1.3", 0, 1), ("TLSv1.3", 1, 2), ("TLSv1.2", 0, 2)])
def test_only_a_short_step_of_a_handshake_runs_on_the_loop(protocol: str, wants: int, steps: int) -> None:
    """The last one of TLS 1.3, if the client presents no certificate that has to be verified."""
    counted = 0

    class Counted(Handshakes):
        def step(self, *given: Any) -> None:
            nonlocal counted
            counted += 1
            super().step(*given)

    there = make_contexts(
        settings_of(SERVER, AUTHORITY, ClientAuth.REQUIRED if wants else ClientAuth.NONE, protocols=(protocol,))
    )
    context = there.server
    assert context is not None

    async def visit() -> None:
        handshakes = Counted(asyncio.get_running_loop())

        def accepted() -> TlsStream:
            stream = OwningSide(Talker(), context, handshakes).stream
            assert stream is not None
            return stream

        listening = await asyncio.get_running_loop().create_server(accepted, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        secured = contexts_of(CLIENT, AUTHORITY).client
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=secured)
        assert await reader.read() == b"", "the server closes a secured connection"
        writer.close()
        listening.close()

    asyncio.run(visit())
    assert counted == steps
