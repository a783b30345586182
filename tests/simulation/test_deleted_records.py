"""What DeleteRecords says is gone is gone on every replica that is alive: no leader to come has it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.cluster import Cluster
from tests.support.node import batch, produce_request

OFFSET = 2


async def delete(cluster: Cluster, leader: int, timeout_ms: int = 30_000) -> tuple[int, int]:
    """(error, low watermark)"""
    wish = DeleteRecordsPartition(partition_index=0, offset=OFFSET)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wish])], timeout_ms=timeout_ms)
    client = await cluster.connect(leader)
    reply: Any = await client.ask(request, 2)
    client.close()
    answer = reply.topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


async def written(cluster: Cluster) -> int:
    """The leader of three replicas that have three records."""
    await cluster.settled()
    await cluster.create("t")
    leader = await cluster.led("t")
    client = await cluster.connect(leader)
    reply: Any = await client.ask(produce_request("t", batch("a", "b", "c")), 9)
    assert reply.responses[0].partition_responses[0].error_code == 0
    client.close()
    return leader


def starts(cluster: Cluster) -> list[int]:
    """Where the log begins on each node that is up."""
    found = [node.broker.replicas.get("t", 0) for node in cluster.nodes.values() if node.is_up and node.broker]
    return [each.log.log_start_offset for each in found if each is not None]


@pytest.mark.parametrize("seed", range(3))
def test_deleted_is_what_no_living_replica_has(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        assert await delete(cluster, leader) == (0, OFFSET)
        assert starts(cluster) == [OFFSET] * 3
        cluster.nodes[leader].crash()
        while (heir := await cluster.led("t")) == leader:
            await asyncio.sleep(0.5)
        assert await delete(cluster, heir) == (0, OFFSET), "a broker that is fenced is not waited for"

    with Cluster(seed) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("idle_s", [2, 15])
def test_what_is_deleted_of_an_idle_partition_is_told_to_followers_at_once(idle_s: int) -> None:
    """Their sessions have nothing else to tell: no records, and the high watermark is what it was."""

    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        await asyncio.sleep(idle_s)
        began_s = cluster.world.now_s
        assert await delete(cluster, leader, timeout_ms=2000) == (0, OFFSET)
        assert cluster.world.now_s < began_s + 0.25, "well before the wait of an idle fetch ends"
        assert starts(cluster) == [OFFSET] * 3

    with Cluster(idle_s) as cluster:
        cluster.live(story)


def test_a_follower_deletes_nothing_by_itself() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        for node_id in cluster.nodes:
            if node_id != leader:
                assert await delete(cluster, node_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        await asyncio.sleep(1)
        assert starts(cluster) == [0, 0, 0]

    with Cluster(3) as cluster:
        cluster.live(story)


def test_a_follower_that_does_not_follow_lets_the_time_run_out() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        follower = next(node for node in cluster.nodes.values() if node.id != leader)
        assert follower.broker is not None
        follower.broker.fetchers.end()
        error, low_watermark = await delete(cluster, leader, timeout_ms=1500)
        assert (error, low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert sorted(starts(cluster)) == [0, OFFSET, OFFSET]

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_leader_that_is_deposed_does_not_know() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        follower = next(node for node in cluster.nodes.values() if node.id != leader)
        assert follower.broker is not None
        follower.broker.fetchers.end()
        broker = cluster.nodes[leader].broker
        assert broker is not None
        answer = asyncio.ensure_future(delete(cluster, leader))
        await asyncio.sleep(0.2)
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        partition.become_follower(follower.id, partition.leader_epoch)
        assert await answer == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    with Cluster(2) as cluster:
        cluster.live(story)
