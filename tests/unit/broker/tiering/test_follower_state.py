"""A follower below its leader's local log start begins with the state of the remote part, and gets in sync."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moldau.broker.node.node import Node
from moldau.protocol.batch_iterator import iterate_batches
from moldau.replication.partition import Partition
from tests.support.cluster import Cluster
from tests.support.node import Closed, batch
from tests.support.tiered_node import TIERED, TOPIC_SETTINGS

PROPERTIES: dict[str, Any] = TIERED | {"rlmm_config_remote_log_metadata_topic_replication_factor": 3}
PRODUCER = 7


def broker(cluster: Cluster, node_id: int) -> Node:
    node = cluster.nodes[node_id].broker
    assert node is not None
    return node


def replica(cluster: Cluster, node_id: int) -> Partition:
    partition = broker(cluster, node_id).replicas.get("t", 0)
    assert partition is not None
    return partition


async def fill(cluster: Cluster, count: int, first: int = 0) -> None:
    """Batches of one idempotent producer, each sent until a leader has taken it."""
    done = first
    while done < first + count:
        try:
            client = await cluster.connect(await cluster.led("t"))
            for _ in range(done, first + count):
                records = batch(
                    f"a{done:06}", f"b{done:06}", producer_id=PRODUCER, producer_epoch=0, base_sequence=2 * done
                )
                answer = await asyncio.wait_for(client.produce("t", records), 10)
                if answer.error_code:
                    break
                done += 1
        except (OSError, Closed, TimeoutError):
            pass
        await asyncio.sleep(0.1)


async def only_active_is_local(cluster: Cluster, leader_id: int) -> Partition:
    leader = replica(cluster, leader_id)
    await cluster.until(lambda: leader.log.segments == [leader.log.active], "copied segments are deleted")
    return leader


async def read_all(cluster: Cluster, node_id: int, end: int) -> list[int]:
    """The offsets that a consumer reads of both tiers."""
    client, offset = await cluster.connect(node_id), 0
    found: list[int] = []
    for _ in range(400):
        answer = await client.fetch("t", offset, max_wait_ms=100)
        assert answer.error_code == 0
        assert answer.records is None or isinstance(answer.records, bytes | memoryview)
        for _, header in iterate_batches(answer.records or b""):
            found += range(header.base_offset, header.next_offset)
            offset = header.next_offset
        if offset >= end:
            return found
    raise AssertionError(f"stuck at offset {offset}")


@pytest.mark.parametrize("count_before", [0, 2])
def test_a_follower_begins_where_the_leaders_files_do_and_can_lead(count_before: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", local_retention_bytes=1, **TOPIC_SETTINGS)
        leader_id = await cluster.led("t")
        behind, third = (node_id for node_id in cluster.nodes if node_id != leader_id)
        await fill(cluster, count_before)
        cluster.nodes[behind].kill()
        await fill(cluster, 12, count_before)
        leader = await only_active_is_local(cluster, leader_id)
        cluster.nodes[behind].boot()
        await cluster.until(lambda: behind in leader.isr, "the follower is in sync", 120)
        log = replica(cluster, behind).log
        assert log.local_start_offset > 4
        assert (log.log_start_offset, log.end_offset) == (0, leader.log.end_offset)
        assert log.epochs.entries == leader.log.epochs.entries
        known = log.producers.entries[PRODUCER]
        assert known.last_sequence == leader.log.producers.entries[PRODUCER].last_sequence
        tiering = broker(cluster, behind).tiering
        assert tiering is not None and tiering.follower_state.built == 1
        for node_id in (third, leader_id):
            cluster.nodes[node_id].kill()
            await cluster.until(lambda: replica(cluster, behind).leader_id != node_id, "another leads", 120)  # noqa: B023
            if node_id == third:
                cluster.nodes[third].boot()
                await cluster.until(lambda: third in leader.isr, "in sync again", 120)
        await fill(cluster, 4, count_before + 12)
        end = 2 * (count_before + 16)
        assert await read_all(cluster, await cluster.led("t"), end) == list(range(end))

    with Cluster(5, nodes=3, **PROPERTIES) as cluster:
        cluster.live(story, limit_s=600)


def test_a_storage_that_is_away_delays_the_follower() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", local_retention_bytes=1, **TOPIC_SETTINGS)
        leader_id = await cluster.led("t")
        behind = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        await fill(cluster, 2)
        cluster.nodes[behind].kill()
        await fill(cluster, 10, 2)
        leader = await only_active_is_local(cluster, leader_id)
        cluster.nodes[behind].host.storage_faults.is_unreachable = True
        cluster.nodes[behind].boot()
        await asyncio.sleep(30)
        assert behind not in leader.isr
        assert replica(cluster, behind).log.end_offset == 4, "the log is not touched before the state is there"
        cluster.nodes[behind].host.storage_faults.is_unreachable = False
        await cluster.until(lambda: behind in leader.isr, "the follower is in sync", 120)

    with Cluster(6, nodes=3, **PROPERTIES) as cluster:
        cluster.live(story, limit_s=600)


def test_an_empty_follower_may_begin_where_nothing_is_copied_yet() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", **TOPIC_SETTINGS)
        leader_id = await cluster.led("t")
        behind = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        cluster.nodes[behind].kill()
        await fill(cluster, 12)
        leader = replica(cluster, leader_id)
        await cluster.until(lambda: leader.log.tiered_end_offset == leader.log.active.base_offset, "all is copied")
        leader.log.config = replace(leader.log.config, local_retention_bytes=leader.log.size - 500)
        await cluster.until(lambda: leader.log.local_start_offset > 0, "some segments are deleted")
        assert len(leader.log.segments) > 2
        cluster.nodes[behind].boot()
        await cluster.until(lambda: behind in leader.isr, "the follower is in sync", 120)
        log = replica(cluster, behind).log
        assert log.local_start_offset == leader.log.active.base_offset
        assert log.epochs.entries == leader.log.epochs.entries

    with Cluster(7, nodes=3, follower_fetch_last_tiered_offset_enable="true", **PROPERTIES) as cluster:
        cluster.live(story, limit_s=600)
