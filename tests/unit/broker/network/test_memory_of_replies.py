"""Memory of replies that nobody takes: how much a fetch copies, who is given up, and that everybody gets all of it.

The simulated network has no files that a kernel could send: what is fetched here is copied.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from moldau.broker.metrics.exposition import Page
from moldau.broker.metrics.traffic import collect_limits
from moldau.broker.network.connection import Connection
from moldau.broker.network.memory import REPLY_STALL_MS, REPLY_STALL_SIZE_MIN
from moldau.protocol.messages.fetch import FetchResponse
from tests.support.node import Client, Closed, Node, batch, fetch_request, serve_and

SIZE_MAX = 1 << 20
BATCH_SIZE = 400_000
"""More than the simulated socket takes at once."""
BATCHES = 10
READERS = 8
LIMIT: dict[str, Any] = {"moldau_queued_max_reply_bytes": SIZE_MAX}


async def filled(node: Node) -> Client:
    """A topic of four MB, in ten batches."""
    client = await node.connect()
    await client.create("t")
    for _ in range(BATCHES):
        assert (await client.produce("t", batch("x" * (BATCH_SIZE // 2)))).error_code == 0
    return client


def stop_reading(client: Client) -> None:
    cast("asyncio.ReadTransport", client.writer.transport).pause_reading()


def go_on_reading(client: Client) -> None:
    cast("asyncio.ReadTransport", client.writer.transport).resume_reading()


def ask_for_all(client: Client, offset: int = 0, **fields: Any) -> None:
    size = BATCHES * BATCH_SIZE
    client.send(fetch_request([("t", 0, offset)], max_bytes=size, partition_max_bytes=size, **fields), 12)


def count_of(response: FetchResponse) -> int:
    records = response.responses[0].partitions[0].records
    return len(cast("bytes", records)) // BATCH_SIZE


async def slow_readers(node: Node, **fields: Any) -> list[Client]:
    readers = [await node.connect() for _ in range(READERS)]
    for each in readers:
        stop_reading(each)
        ask_for_all(each, **fields)
    await asyncio.sleep(2)
    return readers


def test_slow_readers_hold_no_more_together_than_the_limit_and_a_batch_each_and_get_everything() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        memory = node.broker.reply_memory
        readers = await slow_readers(node)
        assert SIZE_MAX // 2 < memory.used_size < SIZE_MAX + READERS * (BATCH_SIZE + 1000)
        assert memory.holders_count > 0

        async def read_on(client: Client) -> int:
            count = count_of(await client.reply())
            while count < BATCHES:
                ask_for_all(client, count)
                count += count_of(await client.reply())
            return count

        for each in readers:
            go_on_reading(each)
        assert await asyncio.gather(*map(read_on, readers)) == [BATCHES] * READERS
        await asyncio.sleep(1)
        assert (memory.used_size, memory.holders_count) == (0, 0)

    serve_and(story, **LIMIT)


def test_without_a_limit_each_gets_what_it_asks_for() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        readers = await slow_readers(node)
        assert node.broker.reply_memory.used_size > READERS * (BATCHES - 5) * BATCH_SIZE
        for each in readers:
            go_on_reading(each)
            assert count_of(await each.reply()) == BATCHES

    serve_and(story, moldau_queued_max_reply_bytes=-1)


def test_what_is_read_from_the_disk_counts_from_the_beginning() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        node.host.disk.faults.cold_read = 1.0
        memory, most = node.broker.reply_memory, 0
        readers = [await node.connect() for _ in range(READERS)]
        for each in readers:
            stop_reading(each)
            ask_for_all(each)
        for _ in range(2000):
            most = max(most, memory.used_size)
            await asyncio.sleep(0.001)
        assert SIZE_MAX // 2 < most < SIZE_MAX + READERS * (BATCH_SIZE + 1000)

    serve_and(story, **LIMIT)


def test_replies_behind_one_that_waits_count() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        await client.create("empty")
        waiting = await node.connect()
        waiting.send(fetch_request([("empty", 0, 0)], max_wait_ms=5_000), 12)
        ask_for_all(waiting)
        await asyncio.sleep(1)
        assert node.broker.reply_memory.used_size > SIZE_MAX // 2
        await waiting.reply()
        assert count_of(await waiting.reply()) > 1
        await asyncio.sleep(1)
        assert node.broker.reply_memory.used_size == 0

    serve_and(story, **LIMIT)


def test_replies_behind_ones_that_wait_take_no_more_than_there_is_room_for() -> None:
    """Otherwise each connection could hold as much as one may, and all together whatever the machine has."""

    async def story(node: Node) -> None:
        await (await filled(node)).create("empty")
        memory = node.broker.reply_memory
        hostile = [await node.connect() for _ in range(4)]
        for each in hostile:
            each.send(fetch_request([("empty", 0, 0)], max_wait_ms=5_000), 12)
            for _ in range(20):
                ask_for_all(each)
        await asyncio.sleep(1)
        assert SIZE_MAX // 2 < memory.used_size < SIZE_MAX + len(hostile) * (BATCH_SIZE + 1000)
        for each in hostile:
            for _ in range(21):
                await each.reply()
        assert memory.used_size == 0

    serve_and(story, **LIMIT)


async def lets_replies_wait(node: Node) -> None:
    """A client whose first request takes long, and that fills the room with what waits behind it."""
    await (await filled(node)).create("empty")
    hostile = await node.connect()
    hostile.send(fetch_request([("empty", 0, 0)], max_wait_ms=1_000_000), 12)
    for _ in range(5):
        ask_for_all(hostile)
    await asyncio.sleep(1)


def test_who_lets_replies_wait_for_long_while_there_is_no_room_is_given_up() -> None:
    async def story(node: Node) -> None:
        await lets_replies_wait(node)
        memory = node.broker.reply_memory
        assert memory.room() == 0
        await asyncio.sleep(3 * REPLY_STALL_MS / 1000)
        assert memory.room() == SIZE_MAX and memory.aborted_count == 1

    serve_and(story, **LIMIT)


def test_who_takes_nothing_while_there_is_no_room_is_given_up() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        readers = await slow_readers(node)
        memory = node.broker.reply_memory
        assert memory.room() == 0
        await asyncio.sleep(3 * REPLY_STALL_MS / 1000)
        assert memory.aborted_count in range(1, READERS) and memory.room() > 0
        gone = 0
        for each in readers:
            go_on_reading(each)
            try:
                await each.reply()
            except Closed:
                gone += 1
        assert gone == memory.aborted_count

    serve_and(story, **LIMIT)


def test_who_takes_next_to_nothing_while_there_is_no_room_is_given_up() -> None:
    """A byte now and then is no reading: it would keep everybody's room for good."""

    async def story(node: Node) -> None:
        await lets_replies_wait(node)
        memory = node.broker.reply_memory
        connection = cast("Connection", next(iter(memory._held)))
        for _ in range(4):
            assert memory.room() == 0
            connection._output.sent_bytes += REPLY_STALL_SIZE_MIN
            await asyncio.sleep(REPLY_STALL_MS / 1000)
        assert memory.aborted_count == 0, "one that reads slowly is kept"
        for _ in range(2):
            connection._output.sent_bytes += REPLY_STALL_SIZE_MIN - 1
            await asyncio.sleep(REPLY_STALL_MS / 1000)
        assert memory.room() == SIZE_MAX and memory.aborted_count == 1

    serve_and(story, **LIMIT)


def test_who_takes_nothing_is_kept_while_there_is_room() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        reader = await node.connect()
        stop_reading(reader)
        reader.send(fetch_request([("t", 0, 0)], partition_max_bytes=SIZE_MAX * 3 // 4), 12)
        await asyncio.sleep(10 * REPLY_STALL_MS / 1000)
        go_on_reading(reader)
        assert count_of(await reader.reply()) == 1

    serve_and(story, **LIMIT)


def test_a_connection_that_ends_gives_back_what_it_held_and_the_metrics_tell() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        readers = await slow_readers(node)
        page = Page()
        collect_limits(page, cast("Any", node.broker))
        memory = node.broker.reply_memory
        assert f"\nmoldau_reply_memory_used_bytes {memory.used_size}\n" in page.text()
        assert f"\nmoldau_reply_memory_holders {memory.holders_count}\n" in page.text()
        for each in readers:
            each.writer.transport.abort()
        await asyncio.sleep(1)
        assert (memory.used_size, memory.holders_count) == (0, 0)

    serve_and(story, **LIMIT)
