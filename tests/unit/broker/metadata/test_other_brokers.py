"""Other brokers are asked by their ids: what a caller hears, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.network.peer_channel import NoResponse
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
        assert replies == ["re: first", NoResponse.NO_ADDRESS] and asked == ["first"]
        assert await brokers.read(1, "test", "third", lambda answer: f"<{answer}>") == "<re: third>"

    asyncio.run(story())
