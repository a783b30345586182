"""A machine that a test adds to the registry is coordinated by whole clusters: led, failed over, found by clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from moldau.broker.coordinators import composition
from moldau.broker.coordinators.definition import KeyType
from moldau.broker.coordinators.registry import CoordinatorRegistry, TopicCoordinator
from moldau.broker.coordinators.shards import Shards
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.storage.log.log import Log
from tests.support.cluster import Cluster, ClusterNode
from tests.support.counters import Add, Count, CounterShard, counter_row
from tests.support.group_offsets import coordinator

KEY = "visitors:AAAAAAAAAAAAAAAAAAAAAQ:0"
"""Of the form of the share coordinator's keys, in whose place the counters are."""
CounterShards = Shards[CounterShard, Add, Count]


def with_counters(coordinators: Iterable[TopicCoordinator], flush: Callable[[Log], None]) -> CoordinatorRegistry:
    """The node's registry with the counters in place of the share coordinator, whose key type they have."""
    groups, transactions, _ = coordinators
    assert isinstance(groups, Shards)
    row = counter_row(partitions=3, replication_factor=3)
    counters: CounterShards = Shards(row, groups._environment, groups._loop, groups._spawn, groups._partitions_count)
    return CoordinatorRegistry([groups, transactions, counters], flush)


def counters_of(node: ClusterNode) -> CounterShards:
    assert node.broker is not None
    shards = node.broker.coordinators.registry.of_key_type(KeyType.SHARE)
    assert isinstance(shards, Shards)
    return shards


async def add(cluster: Cluster) -> int:
    """Add one, at the coordinator wherever it is: the new value."""
    while True:
        node = cluster.nodes.get(await coordinator(cluster, key=KEY, key_type=KeyType.SHARE))
        if node is not None and node.is_up and node.broker is not None:
            runner = counters_of(node).runner_of(KEY)
            if not isinstance(runner, ErrorCode):
                answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                runner.submit(Add(Waiter(Token(answered), 0), KEY, 1))
                answer = await answered
                if isinstance(answer, int) and not isinstance(answer, ErrorCode):
                    return answer
        await asyncio.sleep(0.2)


class Token:
    def __init__(self, answered: asyncio.Future[object]) -> None:
        self._answered = answered

    def complete(self, response: object) -> None:
        if not self._answered.done():
            self._answered.set_result(response)


@pytest.mark.parametrize("seed", range(3))
def test_counters_outlive_their_coordinators(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "CoordinatorRegistry", with_counters)

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        value = 0
        for _ in range(3):
            for _ in range(5):
                value += 1
                assert await add(cluster) == value
            dead = await coordinator(cluster, key=KEY, key_type=KeyType.SHARE)
            node = cluster.nodes[dead]
            (node.crash if seed % 2 else node.kill)()
            value += 1
            assert await add(cluster) == value
            assert await coordinator(cluster, key=KEY, key_type=KeyType.SHARE) != dead
            node.boot()
            await cluster.settled()
            await asyncio.sleep(3)

    with Cluster(seed, broker_session_timeout_ms=3000) as cluster:
        cluster.live(story)
