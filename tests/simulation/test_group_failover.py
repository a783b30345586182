"""The coordinator of a group dies: what was committed is there, and the group goes on within five seconds."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.cluster import Cluster
from tests.support.group_offsets import commit, committed, coordinator

RESUMED_S_MAX = 5.0


@pytest.mark.parametrize("seed", range(4))
def test_a_dead_coordinator_loses_no_offset_and_another_takes_over(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t")
        offset = 0
        for _ in range(3):
            for _ in range(5):
                offset += 1
                await commit(cluster, offset)
            dead = await coordinator(cluster)
            node = cluster.nodes[dead]
            (node.crash if seed % 2 else node.kill)()
            began = asyncio.get_running_loop().time()
            assert await committed(cluster) == offset
            offset += 1
            await commit(cluster, offset)
            assert asyncio.get_running_loop().time() - began < RESUMED_S_MAX
            assert await coordinator(cluster) != dead
            node.boot()
            await cluster.settled()
            await asyncio.sleep(3)

    with Cluster(seed, broker_session_timeout_ms=3000) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", range(2))
def test_all_nodes_name_the_same_coordinator_and_its_log_has_three_replicas(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t")
        await commit(cluster, 1)
        named = {await coordinator(cluster, node_id) for node_id in cluster.nodes}
        assert len(named) == 1 and named != {-1}
        broker = cluster.nodes[1].broker
        assert broker is not None
        offsets = broker.image.topics.by_name("__consumer_offsets")
        assert offsets is not None
        assert {len(each.replicas) for each in offsets.partitions.values()} == {3}

    with Cluster(seed) as cluster:
        cluster.live(story)
