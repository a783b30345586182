"""Tiered storage in a cluster: metadata over the peer channels, and leader changes in the midst of a copy."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.broker.node.node import Node
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from moldau.storage.tiered.layout import parse_key
from moldau.storage.tiered.metadata.remote_segment import SegmentState
from tests.support.cluster import Cluster
from tests.support.node import Closed, batch
from tests.support.tiered_node import TIERED, TOPIC_SETTINGS, URL

PROPERTIES: dict[str, Any] = TIERED | {"rlmm_config_remote_log_metadata_topic_replication_factor": 3}


def broker(cluster: Cluster, node_id: int) -> Node:
    node = cluster.nodes[node_id].broker
    assert node is not None
    return node


def followed(cluster: Cluster, node_id: int, topic: str = "t", index: int = 0) -> FollowedRemoteLog | None:
    node = cluster.nodes[node_id].broker
    partition = node.replicas.get(topic, index) if node is not None else None
    if node is None or node.tiering is None or partition is None:
        return None
    return node.tiering.reader.get(remote_partition(partition))


async def fill(cluster: Cluster, count: int, index: int = 0, topic: str = "t") -> None:
    """Batches that some leader has taken."""
    done = 0
    while done < count:
        leader_id = await cluster.led(topic, index)
        try:
            client = await cluster.connect(leader_id)
            for _ in range(done, count):
                answer = await asyncio.wait_for(
                    client.produce(topic, batch(f"a{done:06}", f"b{done:06}"), partition=index), 10
                )
                if answer.error_code:
                    break
                done += 1
        except (OSError, Closed, TimeoutError):
            pass
        await asyncio.sleep(0.1)


def read_states(found: FollowedRemoteLog) -> list[tuple[int, int, SegmentState]]:
    return sorted((each.start_offset, each.last_offset, each.state) for each in found.remote_log.segments())


def test_every_replica_of_a_tiered_partition_reads_the_same_remote_log() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", partitions=4, **TOPIC_SETTINGS)
        for index in range(4):
            await fill(cluster, 8, index)
        for index in range(4):
            partition = broker(cluster, await cluster.led("t", index)).replicas.get("t", index)
            assert partition is not None
            log = partition.log

            def is_known(index: int = index, end: int = log.active.base_offset) -> bool:
                found = [followed(cluster, node_id, "t", index) for node_id in cluster.nodes]
                logs = [each.replicas.get("t", index) for node in cluster.nodes.values() if (each := node.broker)]
                return all(found) and all(each is not None and each.log.tiered_end_offset == end for each in logs)

            await cluster.until(is_known, f"all replicas of partition {index} know its copies")
            states = [
                read_states(found) for node_id in cluster.nodes if (found := followed(cluster, node_id, "t", index))
            ]
            assert len(states) == 3
            assert states[0] == states[1] == states[2]

    with Cluster(3, nodes=3, **PROPERTIES) as cluster:
        cluster.live(story)


def test_a_leader_that_dies_in_the_midst_of_a_copy_leaves_nothing_behind() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", **TOPIC_SETTINGS)
        first = await cluster.led("t")
        cluster.nodes[first].host.storage_faults.cut_upload = 1.0
        await fill(cluster, 10)

        def begun() -> bool:
            return all(
                (found := followed(cluster, node_id)) is not None and len(found.remote_log.unfinished_copies()) > 0
                for node_id in cluster.nodes
            )

        await cluster.until(begun, "a copy is begun")
        cluster.nodes[first].kill()
        others = [node_id for node_id in cluster.nodes if node_id != first]
        await fill(cluster, 2)

        def all_copied() -> bool:
            for node_id in others:
                found = followed(cluster, node_id)
                partition = broker(cluster, node_id).replicas.get("t", 0)
                if found is None or partition is None or found.remote_log.unfinished_copies():
                    return False
                if partition.log.tiered_end_offset != partition.log.active.base_offset:
                    return False
            return True

        await cluster.until(all_copied, "the next leader has copied all", 120)
        found = followed(cluster, others[0])
        assert found is not None
        segments = found.remote_log.read_segments()
        assert [each.start_offset for each in segments[1:]] == [each.last_offset + 1 for each in segments[:-1]]
        assert {each.segment_id for each in found.remote_log.segments()} == {each.segment_id for each in segments}
        keys = cluster.world.buckets[URL].contents()
        stored = {each.segment_id for key in keys if (each := parse_key(key)) is not None}
        assert stored == {each.segment_id for each in segments}

    with Cluster(4, nodes=3, **PROPERTIES) as cluster:
        cluster.live(story)


def test_a_leader_that_is_deposed_in_the_midst_of_a_copy_takes_its_objects_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", **TOPIC_SETTINGS)
        first = await cluster.led("t")
        node = cluster.nodes[first]
        node.host.storage_faults.slow, node.host.storage_faults.slow_s = 1.0, 8.0
        await fill(cluster, 10)

        def begun() -> bool:
            return bool(cluster.world.buckets[URL].contents()) and all(
                (found := followed(cluster, node_id)) is not None and len(found.remote_log.unfinished_copies()) > 0
                for node_id in cluster.nodes
            )

        def stored() -> set[bytes]:
            keys = cluster.world.buckets[URL].contents()
            return {each.segment_id for key in keys if (each := parse_key(key)) is not None}

        await cluster.until(begun, "a copy is begun", 60)
        found = followed(cluster, first)
        assert found is not None
        (begun_copy,) = found.remote_log.unfinished_copies()
        cluster.world.network.partition([node.host.name], [cluster.nodes[each].host.name for each in others(first)])

        def is_removed() -> bool:
            remote_logs = [followed(cluster, each) for each in others(first)]
            return all(
                each is not None
                and begun_copy.segment_id not in {known.segment_id for known in each.remote_log.segments()}
                for each in remote_logs
            )

        await cluster.until(is_removed, "the next leader has removed the remains", 120)
        await cluster.until(lambda: begun_copy.segment_id in stored(), "the former leader goes on", 60)
        cluster.world.network.heal()
        node.host.storage_faults.slow = 0.0
        await cluster.until(lambda: begun_copy.segment_id not in stored(), "its objects are gone", 60)

    def others(first: int) -> list[int]:
        return [each for each in (1, 2, 3) if each != first]

    with Cluster(4, nodes=3, **PROPERTIES) as cluster:
        cluster.live(story)
