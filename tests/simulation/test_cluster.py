"""Three combined nodes: they elect, replicate and fail over."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from moldau.protocol.record_reader import records_of
from tests.support.cluster import Cluster
from tests.support.node import Closed, batch


@pytest.mark.parametrize("seed", range(3))
def test_three_nodes_elect_a_controller_and_serve(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None
        epochs = {node.broker.quorum.leader_epoch for node in cluster.nodes.values() if node.broker is not None}
        assert len(epochs) == 1, "all know the same epoch"

    with Cluster(seed) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", range(3))
def test_another_node_leads_the_quorum_when_its_leader_dies(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        first = cluster.leader_of_quorum()
        assert first is not None
        await cluster.create("before")
        first.crash()
        await cluster.until(lambda: cluster.leader_of_quorum() not in (None, first), "another leader", 10)
        await cluster.create("after")
        first.boot()
        await asyncio.sleep(1)
        await cluster.settled()
        for node in cluster.nodes.values():
            assert node.broker is not None
            assert {topic.name for topic in node.broker.image.topics.by_id.values()} >= {"before", "after"}

    with Cluster(seed) as cluster:
        cluster.live(story)


async def produce(cluster: Cluster, topic: str, value: str) -> int:
    """Send until acknowledged by all in sync; the offset."""
    while True:
        leader_id = await cluster.leader(topic)
        if leader_id > 0:
            try:
                client = await cluster.connect(leader_id)
                answer = await asyncio.wait_for(client.produce(topic, batch(value)), 5)
                client.close()
                if answer.error_code == 0:
                    return answer.base_offset
            except (OSError, Closed, TimeoutError):
                pass
        await asyncio.sleep(0.1)


async def read(cluster: Cluster, topic: str) -> list[str]:
    """Everything that the leader shows."""
    client = await cluster.connect(await cluster.leader(topic))
    values: list[str] = []
    while True:
        data = await client.fetch(topic, len(values), max_wait_ms=0)
        assert data.error_code == 0, data
        if not data.records:
            client.close()
            return values
        values += [str(record.value or b"", "utf-8") for record in records_of(cast("bytes", data.records))]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_acknowledged_survives_the_leader(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", min_insync_replicas=2, retention_ms=-1)
        sent = []
        for number in range(10):
            sent.append(f"a{number}")
            await produce(cluster, "t", sent[-1])
        dead = await cluster.leader("t")
        cluster.nodes[dead].crash()
        for number in range(10):
            sent.append(f"b{number}")
            await produce(cluster, "t", sent[-1])
        assert await read(cluster, "t") == sent
        cluster.nodes[dead].boot()
        await cluster.settled()
        await asyncio.sleep(5)
        assert await read(cluster, "t") == sent
        partitions = [node.broker.replicas.get("t", 0) for node in cluster.nodes.values() if node.broker]
        assert {partition.log.end_offset for partition in partitions if partition} == {20}

    with Cluster(seed) as cluster:
        cluster.live(story)
