"""A new partition under acks=all: its followers do not wait behind the fetch that is parked at the leader."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.cluster import Cluster
from tests.support.node import batch, produce_request

PATIENCE_MS = 100
"""A parked fetch of a follower returns after 500 ms."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_first_record_of_a_new_topic_is_acknowledged_soon(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("before", 6)
        await asyncio.sleep(3)
        taken_ms = []
        for number in range(5):
            await cluster.create(f"t{number}", 1)
            began_s = cluster.world.now_s
            while (leader_id := await cluster.leader(f"t{number}")) < 0:
                await asyncio.sleep(0.005)
            client = await cluster.connect(leader_id)
            while True:
                reply = await client.ask(produce_request(f"t{number}", batch("a")), 9)
                if reply.responses[0].partition_responses[0].error_code == 0:
                    break
                await asyncio.sleep(0.005)
            taken_ms.append(round(1000 * (cluster.world.now_s - began_s)))
            await asyncio.sleep(1.7)
        assert max(taken_ms) < PATIENCE_MS, taken_ms

    with Cluster(seed) as cluster:
        cluster.live(story)
