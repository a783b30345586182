"""A follower that stops takes nothing more from its leader, of partitions or of metadata: its logs are about to be
closed."""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.cluster import Cluster
from tests.support.node import batch, produce_request


async def write(cluster: Cluster, node_id: int) -> None:
    client = await cluster.connect(node_id)
    while True:
        await client.ask(produce_request("t", batch("v"), acks=1), 9)
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("seed", range(2))
def test_a_follower_that_stops_takes_nothing_more(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t")
        leader_id = await cluster.leader("t")
        follower = next(node.broker for node in cluster.nodes.values() if node.id != leader_id)
        leader = cluster.nodes[leader_id].broker
        assert follower is not None and leader is not None
        copy, original = follower.replicas.get("t", 0), leader.replicas.get("t", 0)
        assert copy is not None and original is not None
        writing = asyncio.ensure_future(write(cluster, leader_id))
        await cluster.until(lambda: copy.log.end_offset > 10, "the follower follows")
        follower.fetchers.end()
        end_offset = copy.log.end_offset
        await asyncio.sleep(1)
        assert copy.log.end_offset == end_offset < original.log.end_offset
        assert not writing.done()
        writing.cancel()

    with Cluster(seed) as cluster:
        cluster.live(story)


def test_what_the_quorum_says_to_one_that_has_stopped_is_not_heard() -> None:
    """Also if it is still to close its other logs."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.broker is not None
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        assert follower.broker is not None
        quorum = follower.broker.quorum
        await quorum.stop()
        end_offset = quorum.log_end_offset
        client = await cluster.connect(leader.id)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
        answer = await client.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert not answer.topics[0].error_code
        await asyncio.sleep(1)
        assert quorum.log_end_offset == end_offset < leader.broker.quorum.log_end_offset

    with Cluster(1) as cluster:
        cluster.live(story)
