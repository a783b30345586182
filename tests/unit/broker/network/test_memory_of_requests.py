"""Memory of unfinished requests: who waits, who is favoured, who is given up, and that everybody gets through."""

from __future__ import annotations

import asyncio
import struct
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.config.loading import checked_config
from moldau.broker.metrics.exposition import Page
from moldau.broker.metrics.traffic import collect_limits
from moldau.broker.network.connection import RECEIVE_BUFFER_SIZE, Connection
from moldau.broker.network.memory import (
    BUFFER_SIZE,
    BUFFERS_MAX,
    FAVOURED_STALL_MS,
    GRANTS_AT_ONCE,
    LENT_FROM_SIZE,
    PARTIAL_SIZE_FIRST,
    REQUEST_STALL_MS,
    SIZE_MAX_DEFAULT,
    SMALL_SIZE,
    RequestMemory,
    RoomQueue,
    RoomRequest,
    request_memory_size_max,
)
from moldau.broker.network.turns import ConnectionRank
from moldau.broker.node.node import Node as Broker
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import ProduceResponse
from tests.support.node import PROPERTIES, Client, Closed, Node, batch, fetch_request, produce_request, serve_and

SIZE_MAX = 1 << 20
REQUEST_SIZE = 600_000
LIMITS: dict[str, Any] = {"socket_request_max_bytes": SIZE_MAX, "queued_max_request_bytes": SIZE_MAX}


class Big:
    """A produce request that is sent in parts."""

    def __init__(self, client: Client) -> None:
        self.client = client
        request = produce_request("t", batch("x" * (REQUEST_SIZE // 2)))  # in its key as well
        client._sent.append((1, request, 9))
        self.frame = size_prefixed(request_frame(request, 9, 1, b""))

    def send(self, size: int) -> None:
        self.client.writer.write(self.frame[:size])
        self.frame = self.frame[size:]


async def big(node: Node) -> Big:
    return Big(await node.connect())


def largest_held(broker: Broker, count: int) -> int:
    """What `count` connections may hold together at the most."""
    return SIZE_MAX + SIZE_MAX + RECEIVE_BUFFER_SIZE + count * SMALL_SIZE


async def succeeded(client: Client) -> bool:
    reply: ProduceResponse = await client.reply()
    return reply.responses[0].partition_responses[0].error_code == 0


def test_a_claimed_size_takes_next_to_nothing() -> None:
    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(10)]
        for client in clients:
            client.writer.write(struct.pack(">i", SIZE_MAX) + b"\0")
        await asyncio.sleep(1)
        assert 10 < node.broker.request_memory.used_size <= 10 * (PARTIAL_SIZE_FIRST + 5)

    serve_and(story, **LIMITS)


def test_who_finds_no_room_waits_and_gets_through_when_there_is() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        memory = node.broker.request_memory
        first, *others = many = [await big(node) for _ in range(6)]
        for each in many:
            each.send(REQUEST_SIZE // 2)
        await asyncio.sleep(1)
        assert memory.waits_count >= memory.waiting_count > 0
        for each in others:
            each.send(REQUEST_SIZE)
        await asyncio.sleep(1)
        first.send(REQUEST_SIZE)
        for each in many:
            assert await succeeded(each.client)
        assert (memory.used_size, memory.waiting_count, memory.is_used_up) == (0, 0, False)
        assert memory.stalled_count == 0

    serve_and(story, **LIMITS)


def test_frames_that_each_hold_a_part_do_not_block_one_another() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        memory = node.broker.request_memory
        many = [await big(node) for _ in range(12)]
        most = 0
        for _ in range(30):
            for each in many:
                each.send(REQUEST_SIZE // 25)
            await asyncio.sleep(0.05)
            most = max(most, memory.used_size)
        for each in many:
            assert await succeeded(each.client)
        assert memory.waits_count > 0 and memory.stalled_count == 0
        assert SIZE_MAX < most <= largest_held(node.broker, len(many))
        assert (memory.used_size, memory.waiting_count, memory.is_used_up) == (0, 0, False)

    serve_and(story, **LIMITS)


def test_small_requests_are_served_while_there_is_no_room() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        many = [await big(node) for _ in range(5)]
        for each in many:
            each.send(REQUEST_SIZE // 2)
        await asyncio.sleep(1)
        assert node.broker.request_memory.is_used_up
        for _ in range(100):
            assert await client.ask(MetadataRequest(topics=[]), 12)
        assert node.broker.request_memory.is_used_up

    serve_and(story, **LIMITS)


def test_frames_that_stop_moving_are_given_up_while_others_wait() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        stalled = [await big(node) for _ in range(4)]
        for each in stalled:
            each.send(REQUEST_SIZE * 9 // 10)
        await asyncio.sleep(1)
        honest = await big(node)
        honest.send(2 * REQUEST_SIZE)
        began = asyncio.get_running_loop().time()
        assert await succeeded(honest.client)
        assert asyncio.get_running_loop().time() - began < 4 * REQUEST_STALL_MS / 1000
        memory = node.broker.request_memory
        assert memory.stalled_count >= 1
        gone = 0
        for each in stalled:
            each.send(REQUEST_SIZE)
            try:
                await each.client.reply()
            except Closed:
                gone += 1
        assert gone == memory.stalled_count < 4, "a waiting connection is never closed"

    serve_and(story, **LIMITS)


def test_a_request_gets_through_however_many_larger_ones_have_stopped_before_it() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        now = asyncio.get_running_loop().time
        stopped = [await node.connect() for _ in range(100)]
        for each in stopped:
            each.writer.write(struct.pack(">i", SIZE_MAX) + bytes(100_000))
        await asyncio.sleep(1)
        memory = node.broker.request_memory
        assert memory.waiting_count > 50
        for _ in range(5):
            honest = await big(node)
            honest.send(2 * REQUEST_SIZE)
            began = now()
            assert await succeeded(honest.client)
            assert now() - began < 4 * FAVOURED_STALL_MS / 1000
        assert memory.waiting_count > 50

    serve_and(story, **LIMITS)


def test_who_takes_no_replies_keeps_no_room_from_others() -> None:
    """Such a connection is not read, so that its frame cannot move: that is its own doing."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        assert await client.produce("t", batch("x" * (REQUEST_SIZE // 2)))
        hostile = [await big(node) for _ in range(6)]
        for each in hostile:
            cast("asyncio.ReadTransport", each.client.writer.transport).pause_reading()
            each.client.send(fetch_request([("t", 0, 0)], max_wait_ms=500, min_bytes=SIZE_MAX), 12)
            each.send(REQUEST_SIZE * 9 // 10)
        await asyncio.sleep(1)
        assert node.broker.request_memory.is_used_up
        honest = await big(node)
        honest.send(2 * REQUEST_SIZE)
        began = asyncio.get_running_loop().time()
        assert await succeeded(honest.client)
        assert asyncio.get_running_loop().time() - began < 4 * REQUEST_STALL_MS / 1000

    serve_and(story, **LIMITS)


def test_a_slow_frame_has_all_the_time_while_nobody_waits() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        slow = await big(node)
        for _ in range(30):
            slow.send(REQUEST_SIZE // 25)
            await asyncio.sleep(REQUEST_STALL_MS / 1000)
        assert await succeeded(slow.client)

    serve_and(story, **LIMITS)


def test_a_connection_that_ends_gives_back_what_it_held_or_waited_for() -> None:
    async def story(node: Node) -> None:
        many = [await big(node) for _ in range(8)]
        for each in many:
            each.send(REQUEST_SIZE // 2)
        await asyncio.sleep(1)
        memory = node.broker.request_memory
        assert memory.waiting_count > 0
        for each in many:
            each.client.close()
        await asyncio.sleep(1)
        assert (memory.used_size, memory.waiting_count, memory.is_used_up) == (0, 0, False)

    serve_and(story, **LIMITS)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_of_arrival_everybody_gets_through(seed: int) -> None:
    random = Random(seed)

    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        many = [await big(node) for _ in range(6)]
        left = list(many)
        while left:
            each = random.choice(left)
            each.send(random.choice((1, 3, 1000, 50_000, 300_000)))
            if random.random() < 0.3:
                await asyncio.sleep(random.random() / 10)
            if not each.frame:
                left.remove(each)
        for each in many:
            assert await succeeded(each.client)
        assert node.broker.request_memory.used_size == 0

    serve_and(story, seed=seed, **LIMITS)


class Waiting:
    """A connection that waits for room, and takes what it is granted."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.received_bytes = 0
        self.is_held = False
        self.granted = 0

    def room_granted(self, size: int) -> None:
        self.granted += size

    def close(self, reason: str, level: int) -> None:
        raise AssertionError(reason)


@pytest.mark.parametrize("seed", range(5))
def test_room_goes_in_turn_to_the_oldest_and_to_the_frame_that_lacks_least(seed: int) -> None:
    random = Random(seed)
    queue = RoomQueue(1 << 62)
    lacks: dict[Waiting, int] = {}
    takes_oldest = True
    for number in range(3000):
        step = random.random()
        if step < (0.7 if number < 1000 else 0.4):
            owner = random.choice(list(lacks)) if lacks and random.random() < 0.1 else Waiting(number)
            queue.forget(owner)
            lacks.pop(owner, None)
            lacks[owner] = random.randrange(50)
            queue.wait(owner, RoomRequest(1, lacks[owner]))
        elif step < 0.8 and lacks:
            ended = random.choice(list(lacks))
            del lacks[ended]
            assert queue.forget(ended) and not queue.forget(ended)
        else:
            expected = None if not lacks else next(iter(lacks)) if takes_oldest else min(lacks, key=lacks.__getitem__)
            taken = queue.take(0)
            assert (taken and taken[0]) is expected
            if expected is not None:
                takes_oldest = not takes_oldest
                del lacks[expected]


def test_many_that_wait_get_room_in_several_iterations() -> None:
    scheduled: list[Any] = []
    loop: Any = SimpleNamespace(call_soon=scheduled.append, call_later=lambda *_: None)
    memory = RequestMemory(1000, loop)
    memory.keep(1000)
    many = [Waiting(number) for number in range(GRANTS_AT_ONCE + 5)]
    memory.reserve(favoured := Waiting(-1), 1, 1, 1)
    for each in many:
        assert not memory.reserve(each, 1, each.number, 1)
    memory.give_back(1000)
    counts = []
    while scheduled:
        scheduled.pop()()
        counts.append(sum(each.granted for each in many))
    assert counts == [GRANTS_AT_ONCE, GRANTS_AT_ONCE + 5] and favoured.granted == 0
    assert memory.used_size == len(many) + 1 and not memory.is_used_up


def test_the_bound_is_on_unless_somebody_takes_it_away() -> None:
    def size_max(**settings: str) -> int | None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return request_memory_size_max(checked_config({**PROPERTIES, **given}))

    assert size_max() == SIZE_MAX_DEFAULT
    assert size_max(queued_max_request_bytes="-1") is None
    assert size_max(queued_max_request_bytes="200000000") == 200_000_000
    assert size_max(socket_request_max_bytes=str(1 << 30)) == 1 << 30


def test_the_metrics_tell_of_it() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        many = [await big(node) for _ in range(5)]
        for each in many:
            each.send(REQUEST_SIZE // 2)
        await asyncio.sleep(1)
        page = Page()
        collect_limits(page, cast("Any", node.broker))
        memory, text = node.broker.request_memory, page.text()
        assert f"\nkafka_network_socketserver_memorypoolused {memory.used_size}\n" in text
        assert f"\nkafka_network_socketserver_memorypoolavailable {SIZE_MAX - memory.used_size}\n" in text
        assert f"\nmoldau_request_memory_waiting_connections {memory.waiting_count}\n" in text
        node.broker.turns.wait(cast("Any", SimpleNamespace(take_turn=lambda until_ns: None)), ConnectionRank.SINGLE)
        page = Page()
        collect_limits(page, cast("Any", node.broker))
        assert "\nmoldau_turns_waiting_connections 1\n" in page.text()

    serve_and(story, **LIMITS)


def test_without_a_bound_nobody_waits() -> None:
    memory = RequestMemory(None, asyncio.new_event_loop())
    for each in range(100):
        assert memory.reserve(each, 1 << 30, 1 << 30, 1 << 30)  # type: ignore[arg-type]


def strangers(count: int) -> list[Connection]:
    return [cast("Connection", object()) for _ in range(count)]


def test_a_few_buffers_are_lent_to_whole_frames_and_used_again() -> None:
    memory = RequestMemory(None, asyncio.new_event_loop())
    first, *others = strangers(BUFFERS_MAX + 1)
    lent = memory.lend(first, REQUEST_SIZE)
    assert lent is not None and len(lent) == REQUEST_SIZE == memory.used_size
    assert all(memory.lend(each, BUFFER_SIZE) is not None for each in others[:-1])
    assert memory.lend(others[-1], REQUEST_SIZE) is None, "each has one"
    memory.release(first)
    again = memory.lend(others[-1], LENT_FROM_SIZE + 1)
    assert again is not None and again.obj is lent.obj


def test_no_buffer_is_lent_where_it_is_not_worth_it_or_there_is_no_room() -> None:
    memory = RequestMemory(2 * SIZE_MAX, asyncio.new_event_loop())
    small, large, first, second = strangers(4)
    assert memory.lend(small, LENT_FROM_SIZE) is None
    assert memory.lend(large, BUFFER_SIZE + 1) is None
    assert memory.lend(first, REQUEST_SIZE) is not None
    assert memory.lend(second, REQUEST_SIZE) is None and memory.used_size == REQUEST_SIZE
