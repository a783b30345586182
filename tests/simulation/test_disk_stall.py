"""One node's disk stands still for two seconds: no heartbeat waits for it, and nobody is fenced."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.support.cluster import Cluster, ClusterNode

SECOND_NS: Final = 1_000_000_000
STALL_S: Final = 2.0


def fenced(cluster: Cluster) -> list[int]:
    """As any node knows."""
    found = []
    for node in cluster.nodes.values():
        assert node.broker is not None
        found += [broker.id for broker in node.broker.image.cluster.brokers.values() if broker.fenced]
    return found


async def stand_still(node: ClusterNode) -> None:
    """Every sync that begins within the stall ends with it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + STALL_S
    while loop.time() < end:
        node.host.disk.faults.sync_ns_min = node.host.disk.faults.sync_ns_max = int((end - loop.time()) * SECOND_NS)
        await asyncio.sleep(0.01)
    node.host.disk.faults.sync_ns_min = node.host.disk.faults.sync_ns_max = SECOND_NS // 1000


@pytest.mark.parametrize("whose", ["the controller's", "another's"])
@pytest.mark.parametrize("seed", range(2))
def test_a_disk_that_stands_still_fences_nobody(seed: int, whose: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t")
        await asyncio.sleep(3)
        assert fenced(cluster) == []
        broker = cluster.nodes[1].broker
        assert broker is not None
        leader_id = broker.quorum.leader_id
        struck = next(
            node for node in cluster.nodes.values() if (node.id == leader_id) == (whose == "the controller's")
        )
        stall = asyncio.ensure_future(stand_still(struck))
        while not stall.done():
            assert fenced(cluster) == []
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        assert fenced(cluster) == []

    with Cluster(seed) as cluster:
        cluster.live(story)
