"""The simulated network keeps TCP's promises, and breaks everything TCP does not promise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.testing.simulation.connection import Connection
from moldau.testing.simulation.network import NetworkProfile
from moldau.testing.simulation.world import SimulatedEnvironment, World


class Recorder(asyncio.Protocol):
    """Keeps what happens to it; answers with `reply` of what it gets."""

    def __init__(self, reply: Callable[[bytes], bytes] | None = None) -> None:
        self.reply = reply
        self.pieces: list[bytes] = []
        self.events: list[str] = []
        self.lost: list[Exception | None] = []
        self.keep_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Connection)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if self.reply is not None:
            self.transport.write(self.reply(data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.append(exc)

    @property
    def received(self) -> bytes:
        return b"".join(self.pieces)


class BufferedRecorder(asyncio.BufferedProtocol):
    def __init__(self, buffer_size: int) -> None:
        self.buffer = bytearray(buffer_size)
        self.received = b""
        self.sizes: list[int] = []

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.sizes.append(nbytes)
        self.received += self.buffer[:nbytes]


class Pair:
    """A server on the host `server`, and the test itself as its client."""

    def __init__(self, seed: int = 1, profile: NetworkProfile | None = None) -> None:
        self.world = World(seed)
        if profile is not None:
            self.world.network.profile = profile
        self.server = self.world.add_host("server")
        self.accepted: list[Recorder] = []
        self.make: Callable[[], asyncio.BaseProtocol] = self.accept
        self.server.boot(self.serve)

    def accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    async def serve(self, environment: SimulatedEnvironment) -> None:
        await asyncio.get_running_loop().create_server(self.make, "0.0.0.0", 9092)
        await asyncio.get_running_loop().create_future()

    async def connect(self) -> Recorder:
        _, client = await asyncio.get_running_loop().create_connection(Recorder, "server", 9092)
        assert isinstance(client, Recorder)
        return client

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self.world:
            self.world.run(scenario(), limit_s=1000)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_in_other_pieces(seed: int) -> None:
    pair = Pair(seed)
    sent = [bytes([number % 251]) * (1 + number * 7 % 300) for number in range(200)]

    async def scenario() -> None:
        client = await pair.connect()
        for data in sent:
            client.transport.writelines([data[:1], memoryview(data)[1:]])
            if seed % 2:
                await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert pair.accepted[0].received == b"".join(sent)
        assert pair.accepted[0].pieces != sent
        assert seed % 2 == 0 or len(pair.accepted[0].pieces) > 20, "what is written at once may also arrive at once"

    pair.run(scenario)


def test_a_buffered_protocol_gets_what_its_buffer_takes() -> None:
    pair = Pair()
    server = BufferedRecorder(100)
    pair.make = lambda: server

    async def scenario() -> None:
        client = await pair.connect()
        sent = bytes(range(256)) * 10
        client.transport.write(sent)
        await asyncio.sleep(1)
        assert server.received == sent
        assert max(server.sizes) == 100

    pair.run(scenario)


def test_names_ports_and_sockets() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        server = pair.accepted[0]
        assert client.transport.get_extra_info("peername") == ("10.0.0.2", 9092)
        assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("socket") is None
        loop = asyncio.get_running_loop()
        here = await loop.create_server(Recorder, "localhost", 0)
        port = here.sockets[0].getsockname()[1]
        await loop.create_connection(Recorder, "127.0.0.1", port)
        here.close()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "127.0.0.1", port)
        with pytest.raises(OSError, match="no host"):
            await loop.create_connection(Recorder, "nowhere", 1)

    pair.run(scenario)


def test_a_bound_port_refuses_until_it_serves() -> None:
    pair = Pair()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, None, 9093, start_serving=False)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(Recorder, None, 9093)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "localhost", 9093)
        await server.start_serving()
        await loop.create_connection(Recorder, "localhost", 9093)

    pair.run(scenario)


def test_a_reader_that_pauses_stops_the_writer() -> None:
    pair = Pair(profile=NetworkProfile(socket_buffer_bytes=10_000))

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        server = pair.accepted[0]
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=5_000, low=1_000)
        client.transport.write(b"x" * 12_000)
        await asyncio.sleep(1)
        assert client.events == ["made"]
        assert client.transport.get_write_buffer_size() == 2_000
        client.transport.write(b"y" * 4_000)
        assert client.events == ["made", "pause"]
        await asyncio.sleep(1)
        assert server.received == b""
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["made", "pause", "resume"]
        assert server.received == b"x" * 12_000 + b"y" * 4_000

    pair.run(scenario)


def test_a_buffer_that_changes_after_the_write_is_sent_changed() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        buffer = bytearray(b"right")
        client.transport.write(buffer)
        buffer[:] = b"wrong"
        await asyncio.sleep(1)
        assert pair.accepted[0].received == b"wrong"

    pair.run(scenario)


def test_close_sends_what_is_buffered_and_then_the_end() -> None:
    pair = Pair(profile=NetworkProfile(socket_buffer_bytes=1_000))

    async def scenario() -> None:
        client = await pair.connect()
        client.transport.write(b"x" * 50_000)
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"ignored")
        await asyncio.sleep(2)
        assert pair.accepted[0].received == b"x" * 50_000
        assert pair.accepted[0].events == ["made", "eof", "lost"]
        assert pair.accepted[0].lost == client.lost == [None]

    pair.run(scenario)


def test_half_a_connection_may_be_closed() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        server = pair.accepted[0]
        server.keep_open = True
        client.transport.write(b"question")
        client.transport.write_eof()
        await asyncio.sleep(1)
        assert server.events == ["made", "eof"]
        server.transport.write(b"answer")
        server.transport.close()
        await asyncio.sleep(1)
        assert client.received == b"answer"
        assert client.events == ["made", "eof", "lost"]

    pair.run(scenario)


def test_abort_resets_the_peer_and_drops_what_is_buffered() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        client.transport.write(b"never sent")
        client.transport.abort()
        await asyncio.sleep(1)
        assert pair.accepted[0].received == b""
        assert isinstance(pair.accepted[0].lost[0], ConnectionResetError)
        assert client.lost == [None]

    pair.run(scenario)


def test_writing_to_a_peer_that_has_closed_ends_in_a_reset() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        client.keep_open = True
        pair.accepted[0].transport.close()
        await asyncio.sleep(1)
        client.transport.write(b"into the void")
        await asyncio.sleep(1)
        assert client.events == ["made", "eof", "lost"]
        assert isinstance(client.lost[0], ConnectionResetError)

    pair.run(scenario)


def test_a_cut_is_one_way_and_heals() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        server = pair.accepted[0]
        pair.world.network.cut("driver", "server")
        client.transport.write(b"stalled")
        server.transport.write(b"goes through")
        await asyncio.sleep(5)
        assert (server.received, client.received) == (b"", b"goes through")
        pair.world.network.heal("driver", "server")
        await asyncio.sleep(1)
        assert server.received == b"stalled"
        assert client.events == server.events == ["made"]

    pair.run(scenario)


@pytest.mark.parametrize(("source", "target"), [("driver", "server"), ("server", "driver")])
def test_what_stays_unacknowledged_times_out(source: str, target: str) -> None:
    """Whether the data or only its acknowledgement is lost."""
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        pair.world.network.cut(source, target)
        client.transport.write(b"data")
        await asyncio.sleep(100)
        assert isinstance(client.lost[0], TimeoutError)
        assert pair.accepted[0].received == (b"" if source == "driver" else b"data")

    pair.run(scenario)


def test_the_world_can_reset_connections() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        assert pair.world.network.reset("driver", "server") == 1
        await asyncio.sleep(0.1)
        assert isinstance(client.lost[0], ConnectionResetError)
        assert isinstance(pair.accepted[0].lost[0], ConnectionResetError)
        assert pair.world.network._connections == {}

    pair.run(scenario)


def test_a_killed_process_has_its_connections_closed_by_the_kernel() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(0.1)
        pair.accepted[0].transport.write(b"last words")
        await asyncio.sleep(0.000_05)  # the kernel has it, the cable not yet
        pair.server.kill()
        await asyncio.sleep(1)
        assert client.received == b"last words"
        assert client.events == ["made", "eof", "lost"]
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    pair.run(scenario)


def test_a_power_cut_is_noticed_when_the_host_is_back() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        pair.server.crash(reset=False)
        await asyncio.sleep(10)
        assert client.events == ["made"]
        client.transport.write(b"are you there?")
        await asyncio.sleep(10)
        assert client.events == ["made"]
        pair.server.boot(pair.serve)
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)

    pair.run(scenario)


def test_a_power_cut_may_be_told_at_once() -> None:
    pair = Pair()

    async def scenario() -> None:
        client = await pair.connect()
        pair.server.crash(reset=True)
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)

    pair.run(scenario)


def test_connecting_to_a_host_that_is_down_waits_for_it() -> None:
    pair = Pair()

    async def scenario() -> None:
        pair.server.crash()
        connecting = asyncio.ensure_future(pair.connect())
        await asyncio.sleep(20)
        assert not connecting.done()
        pair.server.boot(pair.serve)
        client = await connecting
        assert client.events == ["made"]
        pair.server.crash()
        with pytest.raises(TimeoutError):
            await pair.connect()

    pair.run(scenario)


def test_a_cancelled_connect_leaves_no_half_of_it() -> None:
    pair = Pair()

    async def scenario() -> None:
        for delay in (0, 0.0001, 0.0005, 0.001, 0.002, 0.01):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await pair.connect()
                    await asyncio.sleep(1)
        await asyncio.sleep(1)

    pair.run(scenario)


def test_a_protocol_that_raises_loses_its_connection() -> None:
    pair = Pair()
    told: list[str] = []

    class Broken(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise ValueError("malformed")

    async def serve(environment: SimulatedEnvironment) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(str(context["exception"])))
        await loop.create_server(Broken, None, 9092)
        await loop.create_future()

    async def scenario() -> None:
        pair.server.kill()
        pair.server.boot(serve)
        await asyncio.sleep(0.1)
        client = await pair.connect()
        client.transport.write(b"data")
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)

    pair.run(scenario)
    assert told == ["malformed"]
