"""Replies that hold pieces of files, over real sockets: their order, slow readers, files that change, ends."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import socket
import struct
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest
import uvloop

from moldau.broker.network import direct_output
from moldau.broker.network.connection import Connection
from moldau.broker.network.connection_resources import ClosingLog, ConnectionListener, ConnectionResources, Transcoder
from moldau.broker.network.listener_security import plain_security
from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.network.replies import SLICE_SIZE_MIN
from moldau.broker.network.route import RequestContext, Route, RouteBinding
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.runtime import file_sending
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.broker.runtime.file_sender import COLD, FileSender
from moldau.broker.runtime.file_sending import FileSending, HandOverOwner, Part
from moldau.broker.runtime.pending import Pending
from moldau.protocol.compiler import decode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.local_files import LocalFile, LocalFiles
from moldau.storage.files.open_files import OpenFile
from tests.support.modules_in_c import forms_of, plain_form
from tests.support.purgatories import purgatory_of
from tests.support.request_clocks import request_clock

pytestmark = pytest.mark.slow

SENDER = "broker.runtime.file_sender"
DESCRIPTORS_OF_THREAD = 3
FETCH = 1
VERSION = 12
FILE_SIZE = 32 << 20
PATIENCE_S = 20.0
SMALL = 1 << 16
"""Of the buffers of both sockets: a reply of a megabyte does not fit."""


def content(position: int, size: int) -> bytes:
    """What the file holds there: no two places of it look alike."""
    first, last = position // 8, (position + size + 7) // 8
    return b"".join(struct.pack(">Q", place) for place in range(first, last))[position % 8 :][:size]


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("segment") / "00000000000000000000.log"
    path.write_bytes(content(0, FILE_SIZE))
    return path


LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
FORMS: Final = {
    "loop": None,
    **{"thread" if form is plain_form(SENDER) else "thread in C": form for form in forms_of(SENDER)},
}
"""What sends large parts of files: the event loop, or the thread in each of its forms."""


@pytest.fixture(params=itertools.product(LOOPS, FORMS), ids=", ".join)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.AbstractEventLoop]:
    name, sender = request.param
    form = FORMS[sender]
    made: asyncio.AbstractEventLoop = LOOPS[name]()
    sending = None if form is None else FileSending(made, form.FileSender)
    monkeypatch.setattr(file_sending, "file_sending", lambda _: sending)
    yield made
    made.close()


def fetch_frame(correlation_id: int, position: int, size: int, *, is_copied: bool = False) -> bytes:
    """A request for a part of the file; if it is to be copied, by its isolation level."""
    request = FetchRequest(max_wait_ms=position, min_bytes=0, max_bytes=size, isolation_level=int(is_copied))
    return size_prefixed(request_frame(request, VERSION, correlation_id))


class Served:
    """A listener whose fetches are answered with parts of one file."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self.loop = loop
        self.environment = LocalEnvironment(loop)
        self.opened_file: OpenFile | None = OpenFile(LocalFiles().open(str(path), read_only=True))
        self.connections: list[Connection] = []
        self.lost: list[Connection] = []
        self.handled = 0
        self.parked: list[Callable[[], None]] = []
        self.parks: set[int] = set()
        """Requests that wait, by their correlation ids."""
        self.tasks: list[asyncio.Task[None]] = []
        binding = RouteBinding(
            FetchRequest, FetchResponse, lambda context, request: self.answer(context, cast("FetchRequest", request))
        )
        self.listener = SimpleNamespace(
            closing_log=ClosingLog(loop),
            closing=set(),
            security=plain_security(),
            is_for_nodes=False,
            resources=ConnectionResources(
                loop,
                self.environment,
                self.spawn,
                memoryview(bytearray(1 << 16)),
                RequestMemory(None, loop),
                ReplyMemory(-1, loop),
                purgatory_of(loop),
                clock := request_clock(loop),
                cast("Transcoder", None),
                TurnScheduler(clock, loop.call_soon),
            ),
            request_size_max=1 << 20,
            routes={FETCH: Route(FETCH, "Fetch", 4, 18, lambda: binding)},
            opened=self.connections.append,
            closed=self.lost.append,
        )

    def spawn(self, work: Coroutine[object, object, None], name: str = "") -> None:
        self.tasks.append(self.loop.create_task(work))

    def answer(self, context: RequestContext, request: FetchRequest) -> FetchResponse | Pending[FetchResponse]:
        self.handled += 1
        assert self.opened_file is not None
        position, size = request.max_wait_ms, request.max_bytes
        records: bytes | FileSlice = b""
        if request.isolation_level:
            records = self.opened_file.file.pread(size, position)
        elif size:
            assert context.connection.sends_files()
            records = FileSlice(self.opened_file, position, size)
        data = PartitionData(partition_index=0, high_watermark=position, records=records)
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        if context.correlation_id not in self.parks:
            return response
        reply: Pending[FetchResponse] = Pending()
        self.parked.append(lambda: reply.complete(response))
        return reply

    def run(self, story: Callable[[Served, socket.socket], Awaitable[None]]) -> None:
        self.loop.run_until_complete(asyncio.wait_for(self._live(story), PATIENCE_S))
        self.environment.close()

    async def _live(self, story: Callable[[Served, socket.socket], Awaitable[None]]) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        listening.bind(("127.0.0.1", 0))
        server = await self.loop.create_server(
            lambda: Connection(cast("ConnectionListener", self.listener), "127.0.0.1"), sock=listening
        )
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setblocking(False)
        await self.loop.sock_connect(client, listening.getsockname())
        try:
            await story(self, client)
        finally:
            client.close()
            server.close()
            async with asyncio.timeout(PATIENCE_S):
                await self.until(lambda: len(self.lost) == len(self.connections))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Until nothing moves any more: all that can leave without the client has left."""
        before = -1
        while before != (before := self.handled):
            for _ in range(50):
                await asyncio.sleep(0)


async def receive(client: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    parts = []
    while size:
        part = await loop.sock_recv(client, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


async def reply(client: socket.socket) -> tuple[int, PartitionData, int]:
    """The next one: correlation id, the partition's answer, size of the frame."""
    (size,) = struct.unpack(">i", await receive(client, 4))
    frame = await receive(client, size)
    response = decode(FetchResponse, frame[5:], VERSION)
    return struct.unpack_from(">i", frame)[0], response.responses[0].partitions[0], 4 + size


def is_right(data: PartitionData, size: int) -> bool:
    return bytes(cast("bytes", data.records)) == content(data.high_watermark, size)


def test_slices_and_bytes_leave_in_the_order_of_the_requests(loop: asyncio.AbstractEventLoop, whole_file: Path) -> None:
    served = Served(loop, whole_file)
    sizes = [0, SLICE_SIZE_MIN, 3 << 20, 0, 100_000, 1 << 20, 0, SLICE_SIZE_MIN + 1, 0]

    async def story(served: Served, client: socket.socket) -> None:
        frames = [fetch_frame(i, 1000 * i + i, size, is_copied=i == 4) for i, size in enumerate(sizes)]
        await loop.sock_sendall(client, b"".join(frames))
        received_size = 0
        for i, size in enumerate(sizes):
            correlation_id, data, frame_size = await reply(client)
            assert correlation_id == i and is_right(data, size)
            received_size += frame_size
        (connection,) = served.connections
        assert connection.sent_bytes == received_size

    served.run(story)


def test_a_reader_that_takes_nothing_holds_no_memory_and_is_asked_nothing_more(
    loop: asyncio.AbstractEventLoop, whole_file: Path
) -> None:
    served = Served(loop, whole_file)
    count, size = 6, 4 << 20

    async def story(served: Served, client: socket.socket) -> None:
        tracemalloc.start()
        await loop.sock_sendall(client, b"".join(fetch_frame(i, i, size) for i in range(count)))
        await served.until(lambda: served.handled > 0)
        await served.settle()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert served.handled <= 2 and most < 1 << 20
        for i in range(count):
            correlation_id, data, _ = await reply(client)
            assert correlation_id == i and is_right(data, size)

    served.run(story)


def test_bytes_that_the_transport_holds_leave_before_slices(loop: asyncio.AbstractEventLoop, whole_file: Path) -> None:
    served = Served(loop, whole_file)
    size = 6 << 20

    async def story(served: Served, client: socket.socket) -> None:
        served.parks = {1}
        await loop.sock_sendall(client, fetch_frame(0, 0, size, is_copied=True))
        await served.until(lambda: served.handled == 1)
        await loop.sock_sendall(client, fetch_frame(1, 8, size) + fetch_frame(2, 16, size))
        for i in range(3):
            if i == 1:
                await served.until(lambda: bool(served.parked))
                served.parked.pop()()
            correlation_id, data, _ = await reply(client)
            assert correlation_id == i and is_right(data, size)

    served.run(story)


def test_the_way_past_the_transport_waits_until_the_transport_is_empty(
    loop: asyncio.AbstractEventLoop, whole_file: Path
) -> None:
    served = Served(loop, whole_file)
    size = 6 << 20

    async def story(served: Served, client: socket.socket) -> None:
        await loop.sock_sendall(client, fetch_frame(0, 0, 0))
        await reply(client)
        (connection,) = served.connections
        transport = connection._output.transport
        assert transport is not None
        older = content(0, size)
        transport.write(older)
        assert connection.sends_files()
        direct = connection._output.direct
        assert direct is not None and direct.waits is direct_output.OutputWait.TRANSPORT
        assert served.opened_file is not None
        direct.write([b"then bytes", FileSlice(served.opened_file, 8, size), b"and bytes"])
        assert await receive(client, size) == older
        assert await receive(client, 10) == b"then bytes"
        assert await receive(client, size) == content(8, size)
        assert await receive(client, 9) == b"and bytes"
        await loop.sock_sendall(client, fetch_frame(1, 0, SLICE_SIZE_MIN))
        assert (await reply(client))[0] == 1

    served.run(story)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_peer_that_leaves_in_the_middle_of_a_slice_leaves_nothing_behind(
    loop: asyncio.AbstractEventLoop, whole_file: Path
) -> None:
    served = Served(loop, whole_file)

    async def story(served: Served, client: socket.socket) -> None:
        gc.collect()  # what earlier tests left in cycles must not go in the middle of this one
        before = open_descriptors()
        await loop.sock_sendall(client, fetch_frame(0, 0, FILE_SIZE))
        await receive(client, 1000)
        of_thread = 0 if served.environment.file_sending() is None else DESCRIPTORS_OF_THREAD
        assert open_descriptors() == before + 1 + of_thread
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await served.until(lambda: bool(served.lost))
        await served.until(lambda: open_descriptors() <= before - 2 + of_thread)

    served.run(story)


def test_a_file_that_became_shorter_ends_the_connection_before_the_reply_is_whole(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(content(0, 8 << 20))
    served = Served(loop, path)

    async def story(served: Served, client: socket.socket) -> None:
        await loop.sock_sendall(client, fetch_frame(0, 0, 8 << 20))
        await receive(client, 1000)
        os.truncate(path, 4 << 20)
        with pytest.raises((EOFError, ConnectionError)):
            await receive(client, 8 << 20)
        await served.until(lambda: bool(served.lost))

    served.run(story)


def test_a_file_that_was_removed_is_sent_all_the_same(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(content(0, 8 << 20))
    served = Served(loop, path)

    async def story(served: Served, client: socket.socket) -> None:
        await loop.sock_sendall(client, fetch_frame(0, 0, 8 << 20))
        await served.until(lambda: served.handled == 1)
        path.unlink()
        served.opened_file = None
        _, data, _ = await reply(client)
        assert is_right(data, 8 << 20)

    served.run(story)


def test_what_was_answered_leaves_before_the_connection_is_closed(
    loop: asyncio.AbstractEventLoop, whole_file: Path
) -> None:
    served = Served(loop, whole_file)

    async def story(served: Served, client: socket.socket) -> None:
        impossible = struct.pack(">i", -1)
        await loop.sock_sendall(client, fetch_frame(0, 0, 8 << 20) + fetch_frame(1, 0, 0) + impossible)
        assert is_right((await reply(client))[1], 8 << 20)
        assert (await reply(client))[0] == 1
        assert await loop.sock_recv(client, 1) == b""

    served.run(story)


def test_a_closed_connection_whose_peer_takes_nothing_can_be_aborted(
    loop: asyncio.AbstractEventLoop, whole_file: Path
) -> None:
    served = Served(loop, whole_file)

    async def story(served: Served, client: socket.socket) -> None:
        await loop.sock_sendall(client, fetch_frame(0, 0, FILE_SIZE))
        await served.until(lambda: served.handled == 1)
        await served.settle()
        (connection,) = served.connections
        connection.close("a test")
        await served.settle()
        assert connection.is_closed and not served.lost
        connection.abort()
        await served.until(lambda: bool(served.lost))

    served.run(story)


class ColdOnce:
    """A file whose bytes are in the page cache only after they were asked for beside the loop."""

    def __init__(self, file: LocalFile, error: OSError | None = None) -> None:
        self._file = file
        self._error = error
        self.warmed: list[tuple[int, int]] = []

    def is_cached(self, size: int, position: int) -> bool:
        return any(first <= position and position + size <= end for first, end in self.warmed)

    def warm(self, size: int, position: int) -> None:
        if self._error is not None:
            raise self._error
        self._file.warm(size, position)
        self.warmed.append((position, position + size))

    def fileno(self) -> None:
        """The thread would not ask whether the bytes are there."""

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        assert self.is_cached(size, position), "a read that blocks the loop"
        return self._file.send(socket_descriptor, size, position)

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("error", [None, OSError(5, "a bad sector")])
def test_what_left_the_page_cache_meanwhile_is_read_beside_the_loop(
    loop: asyncio.AbstractEventLoop, whole_file: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    monkeypatch.setattr(direct_output, "CACHED_FOR_S", -1.0)
    served = Served(loop, whole_file)
    cold = ColdOnce(LocalFiles().open(str(whole_file), read_only=True), error)
    served.opened_file = OpenFile(cold)  # type: ignore[arg-type]

    async def story(served: Served, client: socket.socket) -> None:
        await loop.sock_sendall(client, fetch_frame(0, 0, 4 << 20) + fetch_frame(1, 0, 0))
        if error is not None:
            with pytest.raises((EOFError, ConnectionError)):
                await receive(client, 4 << 20)
            return
        assert is_right((await reply(client))[1], 4 << 20)
        assert (await reply(client))[0] == 1
        assert cold.warmed

    served.run(story)


def test_a_reply_that_is_complete_while_another_leaves_waits_for_it(
    loop: asyncio.AbstractEventLoop, whole_file: Path
) -> None:
    served = Served(loop, whole_file)
    sizes = [6 << 20, 0, 2 << 20]

    async def story(served: Served, client: socket.socket) -> None:
        served.parks = {0, 1, 2}
        await loop.sock_sendall(client, b"".join(fetch_frame(i, i, size) for i, size in enumerate(sizes)))
        await served.until(lambda: len(served.parked) == len(sizes))
        for complete in served.parked:
            complete()
            await served.settle()
        for i, size in enumerate(sizes):
            correlation_id, data, _ = await reply(client)
            assert correlation_id == i and is_right(data, size)

    served.run(story)


class StoppedSending(FileSending):
    """The first hand-over of each connection ends after its head, because the next bytes are not in the page cache."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, FileSender)
        self.handed: list[list[Part]] = []

    def send(self, owner: HandOverOwner, socket: int, parts: list[Part]) -> bool:
        self.handed.append(parts)
        if len(self.handed) > 1:
            return super().send(owner, socket, parts)
        head = cast("bytes", parts[0][0])
        os.write(socket, head)
        self._loop.call_soon(owner.handed_over_ended, len(head), COLD)
        return True


class ColdFile(ColdOnce):
    def fileno(self) -> int:  # type: ignore[override]
        return self._file.fileno() or 0


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_what_the_thread_does_not_find_in_the_page_cache_is_read_beside_the_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop], whole_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = new_loop()
    sending = StoppedSending(loop)
    monkeypatch.setattr(file_sending, "file_sending", lambda _: sending)
    served = Served(loop, whole_file)
    cold = ColdFile(LocalFiles().open(str(whole_file), read_only=True))
    served.opened_file = OpenFile(cold)  # type: ignore[arg-type]

    async def story(served: Served, client: socket.socket) -> None:
        await loop.sock_sendall(client, fetch_frame(0, 8, 4 << 20) + fetch_frame(1, 0, 0))
        assert is_right((await reply(client))[1], 4 << 20)
        assert (await reply(client))[0] == 1

    served.run(story)
    loop.close()
    assert cold.warmed == [(8, 8 + direct_output.ITERATION_SIZE_MAX)]
    first, second = sending.handed
    assert [part[2:] for part in second] == [part[2:] for part in first[1:]]


def test_a_hand_over_ends_with_a_reply_and_holds_no_memory(loop: asyncio.AbstractEventLoop, whole_file: Path) -> None:
    """So that of many replies the first ones count as sent before the last one is."""
    served = Served(loop, whole_file)
    sending = served.environment.file_sending()
    if sending is None:
        pytest.skip("the event loop sends")
    handed: list[list[Part]] = []
    send = sending.send

    def noted(owner: HandOverOwner, socket: int, parts: list[Part]) -> bool:
        handed.append(parts)
        return send(owner, socket, parts)

    sending.send = noted  # type: ignore[method-assign]
    sizes = [3 << 20, 1 << 20, 100_000, 100_000, 1 << 20, 1 << 16]

    async def story(served: Served, client: socket.socket) -> None:
        served.parks = {0}
        await loop.sock_sendall(client, b"".join(fetch_frame(i, i, size) for i, size in enumerate(sizes)))
        await served.until(lambda: served.handled == len(sizes))
        served.parked.pop()()
        (connection,) = served.connections
        direct = connection._output.direct
        assert direct is not None and direct.waits is direct_output.OutputWait.SENDER
        assert direct.unsent_size() > sum(sizes[:1])
        waiting_heads = direct.held_size()
        assert 0 < waiting_heads < 1000
        for i, size in enumerate(sizes):
            correlation_id, data, _ = await reply(client)
            assert correlation_id == i and is_right(data, size)
        await served.until(lambda: direct.waits is direct_output.OutputWait.NOTHING)
        assert direct.held_size() == direct.unsent_size() == 0

    served.run(story)
    assert [sum(part[3] for part in parts) for parts in handed] == [3 << 20, 1 << 20, 200_000 + (1 << 20), 1 << 16]


@pytest.mark.parametrize("seed", range(2))
def test_every_byte_is_right_whoever_leaves(loop: asyncio.AbstractEventLoop, whole_file: Path, seed: int) -> None:
    """Connections that come and go: clients that read all, that leave in the middle, and that are closed here."""
    served = Served(loop, whole_file)
    draw = random.Random(seed)

    def ends_now(connection: Connection) -> None:
        connection.close("a test")
        connection.abort()

    async def asks(address: tuple[str, int], fate: str, sizes: list[int], first: int) -> None:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setblocking(False)
        await loop.sock_connect(client, address)
        try:
            frames = [fetch_frame(first + i, first + 7 * i, size) for i, size in enumerate(sizes)]
            await loop.sock_sendall(client, b"".join(frames))
            for i, size in enumerate(sizes):
                if fate == "leaves" and i == len(sizes) - 1:
                    received = await receive(client, 8)
                    assert received[4:8] == struct.pack(">i", first + i)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                correlation_id, data, _ = await reply(client)
                assert correlation_id == first + i and is_right(data, size)
        except (EOFError, ConnectionError):
            assert fate == "is closed"
        finally:
            client.close()

    async def story(served: Served, client: socket.socket) -> None:
        address = client.getpeername()
        fates = [draw.choice(["reads", "leaves", "is closed"]) for _ in range(10)]
        running = []
        for number, fate in enumerate(fates):
            sizes = [draw.choice([0, 40_000, 100_000, 1 << 20]) for _ in range(4)]
            count = len(served.connections)
            running.append(loop.create_task(asks(address, fate, sizes, 1000 * number)))
            await served.until(lambda count=count: len(served.connections) > count)  # type: ignore[misc]
            if fate == "is closed":
                loop.call_later(draw.random() / 20, ends_now, served.connections[-1])
        await asyncio.gather(*running)

    served.run(story)
