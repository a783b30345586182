"""The coordinator of a group dies: what was committed is there, and the group goes on within five seconds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.cluster import Cluster
from tests.support.node import Closed

GROUP = "g"
RESUMED_S_MAX = 5.0
LOST = (OSError, Closed, TimeoutError)


async def ask(cluster: Cluster, node_id: int, request: object, version: int) -> Any:
    client = await cluster.connect(node_id)
    try:
        return await asyncio.wait_for(client.ask(request, version), 2)
    finally:
        client.close()


async def coordinator(cluster: Cluster, asked: int | None = None) -> int:
    """As one node tells it, or the first that answers; -1 where nobody knows."""
    for node in cluster.nodes.values():
        if node.is_up and asked in (None, node.id):
            try:
                reply = await ask(cluster, node.id, FindCoordinatorRequest(key=GROUP, key_type=0), 3)
            except LOST:
                continue
            if reply.error_code == 0:
                found: int = reply.node_id
                return found
    return -1


async def commit(cluster: Cluster, offset: int) -> None:
    """Commit until it is acknowledged."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    while True:
        node_id = await coordinator(cluster)
        if node_id > 0:
            try:
                reply = await ask(cluster, node_id, request, 8)
                if reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    return
            except LOST:
                pass
        await asyncio.sleep(0.05)


async def committed(cluster: Cluster) -> int:
    """Ask until a coordinator answers."""
    request = OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    while True:
        node_id = await coordinator(cluster)
        if node_id > 0:
            try:
                reply = await ask(cluster, node_id, request, 7)
                if reply.error_code == ErrorCode.NONE:
                    offset: int = reply.topics[0].partitions[0].committed_offset
                    return offset
            except LOST:
                pass
        await asyncio.sleep(0.05)


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
