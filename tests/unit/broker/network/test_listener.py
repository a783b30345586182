"""A listener over its life: who is idle, who takes nothing, and what a stop leaves."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from moldau.broker.network import listener
from moldau.protocol.messages.metadata import MetadataRequest
from tests.support.node import Client, Closed, Node, batch, fetch_request, serve_and
from tests.support.purgatories import watch_count

IDLE_MS = 10_000


async def is_open(client: Client) -> bool:
    try:
        await client.ask(MetadataRequest(topics=[]), 12)
    except Closed:
        return False
    return True


def test_who_sends_nothing_for_long_is_disconnected_and_who_sends_is_not() -> None:
    async def story(node: Node) -> None:
        silent, busy = await node.connect(), await node.connect()
        for _ in range(8):
            await asyncio.sleep(IDLE_MS / 4 / 1000)
            assert await is_open(busy)
        await asyncio.sleep(1)
        assert not await is_open(silent) and await is_open(busy)

    serve_and(story, connections_max_idle_ms=IDLE_MS)


def test_a_sweep_over_many_lets_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEPT_AT_ONCE", 3)

    async def story(node: Node) -> None:
        silent = [await node.connect() for _ in range(10)]
        await asyncio.sleep(2.5 * IDLE_MS / 1000)
        assert [await is_open(each) for each in silent] == [False] * 10

    serve_and(story, connections_max_idle_ms=IDLE_MS)


def test_a_negative_limit_disconnects_nobody() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await asyncio.sleep(500)
        assert await is_open(client)

    serve_and(story, connections_max_idle_ms=-1)


def test_a_peer_that_takes_nothing_is_gone_after_two_sweeps() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        for _ in range(20):
            await client.produce("t", batch("x" * 100_000))
        reader = await node.connect()
        cast("asyncio.ReadTransport", reader.writer.transport).pause_reading()
        for _ in range(50):
            reader.send(fetch_request([("t", 0, 0)], partition_max_bytes=1 << 22), 12)
        await asyncio.sleep(1)
        (serving,) = (each for each in node.broker.listeners if each.name == "PLAINTEXT")
        assert len(serving.connections) == 2
        for _ in range(16):
            await asyncio.sleep(IDLE_MS / 4 / 1000)
            assert await is_open(client)
        assert len(serving.connections) == 1

    serve_and(story, connections_max_idle_ms=IDLE_MS)


def test_a_stop_gives_up_what_is_parked_and_closes_everybody() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        client.send(fetch_request([("t", 0, 0)], max_wait_ms=1_000_000), 12)
        await asyncio.sleep(0.1)
        broker = node.broker
        node.stop()
        with pytest.raises(Closed):
            await client.reply()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        assert not any(each.connections for each in broker.listeners)
        assert watch_count(broker.purgatory) == 0 == sum(broker.purgatory.sizes.values())
        node.boot()
        assert await is_open(await node.connect())

    serve_and(story)
