"""The way to another node: greeting, order, silence, and a reply for every request, whatever happens."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.network.peer_channel import NoResponseReason, PeerChannels
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.protocol.compiler import decode, encode
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.testing.simulation.world import SimulatedEnvironment, World

FETCH, HEARTBEAT, GREETING = 1, 12, 18
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def request(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """Key, version, correlation id and body of the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    key, version, correlation_id, name_size = struct.unpack_from(">hhih", frame)
    return key, version, correlation_id, frame[10 + name_size :]


def reply(writer: asyncio.StreamWriter, correlation_id: int, body: bytes) -> None:
    writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    key, version, correlation_id, _ = await request(reader)
    assert (key, version) == (GREETING, 3)
    keys = [
        ApiVersion(api_key=FETCH, min_version=4, max_version=12),
        ApiVersion(api_key=HEARTBEAT, min_version=0, max_version=3),
    ]
    reply(writer, correlation_id, encode(ApiVersionsResponse(api_keys=keys), 3))


def talk(peer: Peer, story: Callable[[PeerChannels], Awaitable[None]], *, seed: int = 1) -> None:
    """A peer on one simulated host, the channels on another."""
    done: list[bool] = []
    with World(seed) as world:
        there, here = world.add_host("peer"), world.add_host("here")

        async def serve(environment: SimulatedEnvironment) -> None:
            await asyncio.start_server(peer, port=9093)
            await asyncio.Event().wait()

        async def main(environment: SimulatedEnvironment) -> None:
            await asyncio.sleep(0.1)
            channels = PeerChannels(asyncio.get_running_loop(), Timeouts(asyncio.get_running_loop()), "test", "4.3.1")
            await story(channels)
            channels.close()
            done.append(True)

        async def wait() -> None:
            while not done:
                await asyncio.sleep(0.1)

        there.boot(serve)
        here.boot(main)
        world.run(wait(), limit_s=60)


async def ask(channels: PeerChannels, message: object, timeout_ms: int = 1000) -> object:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    channels.to("test", "peer", 9093).ask(message, future.set_result, timeout_ms)
    return await future


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("seed", range(5))
def test_requests_are_pipelined_in_the_newest_version_of_both(seed: int) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        first, second = await request(reader), await request(reader)
        assert [each[:2] for each in (first, second)] == [(HEARTBEAT, 3), (FETCH, 12)]
        assert decode(FetchRequest, second[3][1:], 12).max_wait_ms == 500
        records = b"r" * 3_000_000
        topic = FetchableTopicResponse(
            topic="t", partitions=[PartitionData(partition_index=0, high_watermark=1, records=records)]
        )
        reply(writer, first[2], encode(HeartbeatResponse(error_code=27), 3))
        reply(writer, second[2], b"\0" + encode(FetchResponse(responses=[topic]), 12))

    async def story(channels: PeerChannels) -> None:
        read: list[object] = []
        both: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fetched(response: object) -> None:
            assert isinstance(response, FetchResponse)
            read.append(len(response.responses[0].partitions[0].records or b""))
            both.set_result(None)

        def beaten(response: object) -> None:
            assert isinstance(response, HeartbeatResponse)
            read.append(response.error_code)

        channel = channels.to("test", "peer", 9093)
        channel.ask(heartbeat(), beaten, 5000)
        channel.ask(FetchRequest(max_wait_ms=500, min_bytes=1), fetched, 5000)
        await both
        assert read == [27, 3_000_000]

    talk(peer, story, seed=seed)


def test_silence_ends_every_wait_and_the_next_request_connects_anew() -> None:
    connections = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await greet(reader, writer)
        if len(connections) > 1:
            _, _, correlation_id, _ = await request(reader)
            reply(writer, correlation_id, encode(HeartbeatResponse(), 3))

    async def story(channels: PeerChannels) -> None:
        both = await asyncio.gather(ask(channels, heartbeat(), 300), ask(channels, heartbeat(), 5000))
        assert list(both) == [NoResponseReason.TIMED_OUT, NoResponseReason.TIMED_OUT]
        assert isinstance(await ask(channels, heartbeat()), HeartbeatResponse)

    talk(peer, story)


def test_a_look_up_that_takes_too_long_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(channels: PeerChannels) -> None:
        loop = asyncio.get_running_loop()
        looked_up: asyncio.Future[list[object]] = loop.create_future()
        monkeypatch.setattr(loop, "getaddrinfo", lambda *_, **__: looked_up)
        assert await ask(channels, heartbeat(), 60_000) is NoResponseReason.TIMED_OUT
        assert looked_up.cancelled(), "else its refusal is an error that nobody hears"

    talk(greet, story)


def test_the_first_address_that_takes_the_connection_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        _, _, correlation_id, _ = await request(reader)
        reply(writer, correlation_id, encode(HeartbeatResponse(), 3))

    async def story(channels: PeerChannels) -> None:
        loop = asyncio.get_running_loop()
        tried: list[str] = []
        connect = loop.create_connection

        async def found(host: str, port: int, **_: object) -> list[object]:
            addresses = ("fe80::1", port, 0, 2), ("::1", port, 0, 0), (host, port)
            return [(0, 0, 0, "", address) for address in addresses]

        async def create_connection(protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> object:
            tried.append(host)
            if host != "peer":
                raise ConnectionRefusedError(host)
            return await connect(protocol, host, port)

        monkeypatch.setattr(loop, "getaddrinfo", found)
        monkeypatch.setattr(loop, "create_connection", create_connection)
        assert isinstance(await ask(channels, heartbeat()), HeartbeatResponse)
        assert tried == ["fe80::1%2", "::1", "peer"]

    talk(peer, story)


def test_nobody_there_is_no_answer() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def story(channels: PeerChannels) -> None:
        assert await ask(channels, heartbeat()) is NoResponseReason.DISCONNECTED
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        channels.to("test", "peer", 1).ask(heartbeat(), future.set_result, 1000)
        assert await future is NoResponseReason.DISCONNECTED

    talk(peer, story)


def test_a_name_that_no_host_can_have_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(channels: PeerChannels) -> None:
        async def refuse(*_: object, **__: object) -> list[object]:
            raise UnicodeError("label empty or too long")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
        for _ in range(2):
            assert await ask(channels, heartbeat(), 60_000) is NoResponseReason.DISCONNECTED

    talk(greet, story)


def test_an_api_that_the_peer_does_not_speak_is_no_answer() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, correlation_id, _ = await request(reader)
        reply(writer, correlation_id, encode(ApiVersionsResponse(), 3))

    async def story(channels: PeerChannels) -> None:
        assert await ask(channels, heartbeat()) is NoResponseReason.REFUSED

    talk(peer, story)


@pytest.mark.parametrize("is_flexible", [False, True])
@pytest.mark.parametrize(("skipped", "body"), [(1, b""), (0, b""), (0, b"\0\0")])
def test_a_malformed_reply_ends_the_connection_and_each_wait(skipped: int, body: bytes, is_flexible: bool) -> None:
    """A follower whose fetch has no end never fetches again."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        _, _, correlation_id, _ = await request(reader)
        reply(writer, correlation_id + skipped, body)

    async def story(channels: PeerChannels) -> None:
        asked: object = FetchRequest(max_wait_ms=0, min_bytes=0) if is_flexible else heartbeat()
        waiting = (ask(channels, asked), ask(channels, heartbeat()))
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 10)
        assert list(answers) == [NoResponseReason.REFUSED] * 2

    talk(peer, story)
