"""Connection limits of a whole node: what a client sees of them, and what changes at run time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from moldau.broker.metrics.exposition import Page
from moldau.broker.metrics.traffic import collect_limits
from moldau.broker.network import listener
from moldau.broker.network.listener import Listener
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.simulation.world import DRIVER
from tests.support.node import Client, Closed, Node, serve_and

PATIENCE_S = 3


async def is_served(client: Client) -> bool | None:
    """None if nothing is answered and the connection stays."""
    try:
        await asyncio.wait_for(client.ask(MetadataRequest(topics=[]), 12), PATIENCE_S)
    except Closed:
        return False
    except TimeoutError:
        return None
    return True


def of_clients(node: Node) -> Listener:
    return next(each for each in node.broker.listeners if each.name == "PLAINTEXT")


async def alter(client: Client, **settings: object) -> None:
    """Dots in names are written as underscores."""
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=str(value))
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    reply = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert reply.responses[0].error_code == 0, reply.responses[0].error_message
    await asyncio.sleep(0.1)


def samples(node: Node) -> dict[str, float]:
    page = Page()
    collect_limits(page, cast("Any", node.broker))
    lines = [line for line in page.text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_who_comes_when_there_are_max_connections_waits_until_one_ends() -> None:
    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(3)]
        assert [await is_served(each) for each in clients] == [True, True, None]
        seen = samples(node)
        assert seen['moldau_accept_blocked{listener="PLAINTEXT"}'] == 1
        assert seen['moldau_accept_blocked_seconds_total{listener="PLAINTEXT"}'] >= PATIENCE_S - 0.1
        clients[0].close()
        await clients[2].reply()
        assert samples(node)['moldau_accept_blocked{listener="PLAINTEXT"}'] == 0

    serve_and(story, max_connections=2)


def test_a_listener_may_have_fewer() -> None:
    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(2)]
        assert [await is_served(each) for each in clients] == [True, None]

    limits: dict[str, Any] = {"max_connections": 10, "listener.name.plaintext.max.connections": 1}
    serve_and(story, **limits)


def test_who_has_too_many_from_one_address_is_disconnected_at_once() -> None:
    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(3)]
        assert [await is_served(each) for each in clients] == [True, True, False]
        assert samples(node)['moldau_connections_refused_total{listener="PLAINTEXT"}'] == 1
        clients[0].close()
        await asyncio.sleep(0.1)
        assert await is_served(await node.connect())

    serve_and(story, max_connections_per_ip=2)


def test_an_address_may_have_a_limit_of_its_own() -> None:
    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(4)]
        assert [await is_served(each) for each in clients] == [True, True, True, False]

    async def address(node: Node) -> None:
        story_address.append(node.world.network.nodes[DRIVER].address)

    story_address: list[str] = []
    serve_and(address)
    serve_and(story, max_connections_per_ip=1, max_connections_per_ip_overrides=f"192.0.2.9:7,{story_address[0]}:3")


def test_new_connections_come_at_the_rate_and_nobody_is_disconnected() -> None:
    async def story(node: Node) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        clients = await asyncio.gather(*(node.connect() for _ in range(40)))
        times: list[float] = []

        async def ask(client: Client) -> None:
            await client.ask(MetadataRequest(topics=[]), 12)
            times.append(now() - began)

        await asyncio.gather(*(ask(each) for each in clients))
        assert sum(time < 1 for time in times) in range(20, 24)
        assert 9 < max(times) < 12

    serve_and(story, max_connection_creation_rate=2)


def test_limits_change_at_run_time() -> None:
    async def story(node: Node) -> None:
        first = await node.connect()
        assert await is_served(first)
        await alter(first, max_connections=1)
        second = await node.connect()
        assert await is_served(second) is None
        await alter(first, max_connections=2)
        await second.reply()
        await alter(first, max_connections_per_ip=2)
        assert await is_served(await node.connect()) is None
        await alter(first, max_connections=100, **{"listener.name.plaintext.max.connections": 50})
        await asyncio.sleep(1)
        assert of_clients(node).refused_count == 1

    serve_and(story)


def test_lowering_the_limit_ends_the_least_used_connections() -> None:
    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(5)]
        await asyncio.sleep(15)
        busy = clients[3:]
        for each in busy:
            assert await is_served(each)
        await alter(busy[0], max_connections=2)
        assert [await is_served(each) for each in clients] == [False, False, False, True, True]
        assert samples(node)['moldau_connections_excess_closed_total{listener="PLAINTEXT"}'] == 3
        assert len(of_clients(node).connections) == 2

    serve_and(story, connections_max_idle_ms=10_000)


def test_many_in_excess_are_chosen_once_and_closed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choosing takes as long as there are connections, and closing thousands takes a second."""
    monkeypatch.setattr(listener, "SWEPT_AT_ONCE", 3)
    chosen: list[int] = []
    open_after: list[int] = []
    choose, close = Listener.close_in_excess, Listener._close_some_in_excess

    def count_chosen(self: Listener, count: int) -> int:
        chosen.append(choose(self, count))
        return chosen[-1]

    def count_open(self: Listener) -> None:
        close(self)
        open_after.append(sum(not each.is_closed for each in self.connections))

    monkeypatch.setattr(Listener, "close_in_excess", count_chosen)
    monkeypatch.setattr(Listener, "_close_some_in_excess", count_open)

    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(12)]
        await alter(clients[-1], max_connections=2)
        assert [await is_served(each) for each in clients] == [False] * 10 + [True] * 2
        assert chosen == [10] and open_after == [9, 6, 3, 2]
        assert of_clients(node).excess_count == 10 and of_clients(node).closing_count == 0

    serve_and(story)


def test_what_is_idle_is_counted() -> None:
    async def story(node: Node) -> None:
        await node.connect()
        await asyncio.sleep(25)
        name = 'kafka_network_socketserver_expiredconnectionskilledcount{listener="PLAINTEXT"}'
        assert samples(node)[name] == 1

    serve_and(story, connections_max_idle_ms=10_000)


def test_controllers_have_limits_of_their_own() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert await is_served(client)
        controllers = next(each for each in node.broker.listeners if each.name == "CONTROLLER")
        assert controllers._quotas is not of_clients(node)._quotas

    serve_and(story, max_connections=1)


def test_nothing_is_counted_twice_however_connections_end() -> None:
    async def story(node: Node) -> None:
        for number in range(30):
            client = await node.connect()
            if number % 3 == 0:
                client.writer.transport.abort()
            elif number % 3 == 1:
                client.writer.write(b"\0\0\0\x03abc")
            else:
                client.close()
        await asyncio.sleep(1)
        quotas = of_clients(node)._quotas
        assert (quotas.count, quotas.count_of_listener["PLAINTEXT"], quotas.count_of_address) == (0, 0, {})

    serve_and(story, max_connections=2)
