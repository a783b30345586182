"""Other brokers are asked by their ids: what a caller hears, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.network.peer_channel import NoResponseReason
from tests.support.other_brokers import brokers_behind


def test_a_broker_is_asked_at_its_address_and_without_one_the_caller_hears_so_later() -> None:
    async def story() -> None:
        endpoints = {1: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="h", port=1)})}
        cluster = SimpleNamespace(image=SimpleNamespace(cluster=SimpleNamespace(brokers=endpoints)))
        asked: list[Any] = []

        def ask(request: object, reply: Callable[[object], None]) -> None:
            asked.append(request)
            asyncio.get_running_loop().call_soon(reply, f"re: {request}")

        brokers = brokers_behind(cast(Any, cluster), ask)
        replies: list[object] = []
        brokers.ask(1, "test", "first", replies.append)
        brokers.ask(2, "test", "second", replies.append)
        assert not replies, "never within the call"
        await asyncio.sleep(0)
        assert replies == ["re: first", NoResponseReason.NO_ADDRESS] and asked == ["first"]
        assert await brokers.read(1, "test", "third", lambda answer: f"<{answer}>") == "<re: third>"

    asyncio.run(story())


def test_a_response_that_comes_after_its_reader_has_gone_is_dropped() -> None:
    async def story() -> None:
        endpoints = {1: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="h", port=1)})}
        cluster = SimpleNamespace(image=SimpleNamespace(cluster=SimpleNamespace(brokers=endpoints)))
        replies: list[Callable[[object], None]] = []
        brokers = brokers_behind(cast(Any, cluster), lambda request, reply: replies.append(reply))
        reader = asyncio.ensure_future(brokers.read(1, "test", "asked", lambda answer: answer))
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        replies[0]("too late")

    asyncio.run(story())
