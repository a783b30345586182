"""A bit that flips on one disk: the replica is fenced and fetched again, and nobody gets or loses anything."""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.storage.segment.batch_scan import damage_in
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.cluster import Cluster, ClusterNode
from tests.support.node import Client, batch, fetch_request, produce_request

VALUES = 40
SEGMENT = f"{0:020d}.log"


async def written(cluster: Cluster, segment_bytes: int = 1 << 20) -> ClusterNode:
    """A topic on three nodes with records in several segments, all durable; its leader."""
    await cluster.settled()
    configs = {"min_insync_replicas": 2, "flush_messages": 1, "internal_segment_bytes": segment_bytes}
    await cluster.create("t", 1, 3, **configs)
    while (leader_id := await cluster.leader("t")) < 0:
        await asyncio.sleep(0.1)
    leader = cluster.nodes[leader_id]
    client = await cluster.connect(leader.id)
    for number in range(VALUES):
        reply = await client.ask(produce_request("t", batch(f"value {number}")), 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
    client.close()
    await asyncio.sleep(8)  # the recovery points are in their checkpoints
    return leader


def log_path(node: ClusterNode) -> str:
    assert node.broker is not None
    partition = node.broker.replicas.get("t", 0)
    assert partition is not None
    return f"{partition.log.directory}/{SEGMENT}"


async def read_all(cluster: Cluster) -> list[int]:
    """The base offsets that a consumer gets, which asks again for what is damaged, from whoever leads."""
    offset = 0
    got: list[int] = []
    for _ in range(400):
        leader_id = await cluster.leader("t")
        if leader_id > 0:
            client = await cluster.connect(leader_id)
            offset = await read_on(client, offset, got)
            client.close()
            if offset >= VALUES:
                return got
        await asyncio.sleep(0.1)
    raise AssertionError(f"only {got}")


async def read_on(client: Client, offset: int, got: list[int]) -> int:
    for _ in range(100):
        request = fetch_request([("t", 0, offset)], max_wait_ms=100, partition_max_bytes=300)
        data = (await client.ask(request, 11)).responses[0].partitions[0]
        records = bytes(data.records or b"")
        if data.error_code != ErrorCode.NONE or offset >= VALUES:
            break
        if records and damage_in(records) is None:
            got.append(int.from_bytes(records[:8], "big"))
            offset = got[-1] + 1
    return offset


def is_whole(cluster: Cluster) -> bool:
    brokers = [node.broker for node in cluster.nodes.values() if node.broker is not None]
    return all(
        not len(broker.damaged)
        and (assigned := broker.image.topics.partition("t", 0)) is not None
        and len(assigned.isr) == 3
        and broker.replicas.get("t", 0) is not None
        for broker in brokers
    )


def stray(disk: SimulatedDisk, path: str) -> list[str]:
    directory = path.rpartition("/")[0].rpartition("/")[0]
    return [name for name in disk.list_directory(directory) if name.endswith("-stray")]


def is_out(node: ClusterNode) -> bool:
    """Whether another replica leads and this one is not in sync, so that its repair begins."""
    assert node.broker is not None
    assigned = node.broker.image.topics.partition("t", 0)
    return assigned is not None and node.id not in (assigned.leader, *assigned.isr)


def topic_ids(node: ClusterNode) -> tuple[bytes, bytes | None]:
    """Of the replica, and of its log."""
    partition = node.broker.replicas.get("t", 0) if node.broker is not None else None
    assert partition is not None
    return partition.topic_id, partition.log.topic_id


@pytest.mark.parametrize("position", [9, 20, 65], ids=["in a length", "in a header", "in a record"])
def test_a_leader_whose_disk_rots_gives_up_its_place_and_fetches_what_was_bad(position: int) -> None:
    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        path = log_path(leader)
        bad = leader.host.disk.flip_bit(path, position)
        before = bytes(leader.host.disk.peek(path))
        assert await read_all(cluster) == list(range(VALUES))
        await cluster.until(lambda: is_whole(cluster), "the replica is in sync again", 60)
        assert leader.broker is not None and leader.broker.damaged.repaired_count == 1
        assert not leader.broker.logs.offline
        (aside,) = stray(leader.host.disk, path)
        kept = f"{path.rpartition('/')[0].rpartition('/')[0]}/{aside}/{SEGMENT}"
        assert bytes(leader.host.disk.peek(kept)) == before and bad == position
        logs = {bytes(node.host.disk.peek(log_path(node))) for node in cluster.nodes.values()}
        assert len(logs) == 1

    with Cluster(3) as cluster:
        cluster.live(story)


def test_damage_is_found_though_others_are_asked_for_in_between() -> None:
    """A follower that refuses a batch leaves that partition alone for a while, and goes on with its neighbours."""

    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        leader.host.disk.flip_bit(log_path(leader), 65)
        await cluster.create("u", 1, 3)
        while await cluster.leader("u") < 0:
            await asyncio.sleep(0.1)
        neighbour = await cluster.connect(await cluster.leader("u"))
        await neighbour.ask(produce_request("u", batch("a neighbour")), 9)
        neighbour.close()
        client = await cluster.connect(leader.id)
        for _ in range(3):
            for topic in ("t", "u"):
                await client.ask(fetch_request([(topic, 0, 0)], max_wait_ms=0, partition_max_bytes=300), 11)
        client.close()
        await asyncio.sleep(1)
        assert leader.broker is not None and leader.broker.damaged.found_count == 1

    with Cluster(3) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_replica_that_finds_its_damage_at_the_start_is_fetched_again(is_clean: bool) -> None:
    """After a crash recovery finds it; after a clean stop the next who reads there does."""

    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        path = log_path(follower)
        if is_clean:
            follower.stop()
            await cluster.until(lambda: not follower.is_up, "stopped")
        else:
            follower.kill()
        follower.host.disk.flip_bit(path, 65)
        follower.boot()
        await cluster.settled()
        if is_clean:
            assert follower.broker is not None
            damaged = follower.broker.replicas.get("t", 0)
            assert damaged is not None
            client = await cluster.connect(follower.id)
            assert await read_on(client, 0, []) == 0, "what is damaged is told"
            assert not follower.broker.fetchers.leaders_of(damaged), "nothing more is fetched for it"
        await cluster.until(lambda: is_whole(cluster), "the replica is in sync again", 60)
        assert follower.broker is not None and follower.broker.damaged.repaired_count == 1
        assert await read_all(cluster) == list(range(VALUES))
        assert len({bytes(node.host.disk.peek(log_path(node))) for node in cluster.nodes.values()}) == 1

    with Cluster(4) as cluster:
        cluster.live(story)


def test_a_repaired_replica_that_has_nothing_yet_is_not_in_sync() -> None:
    """Its leader knows from before that it had everything, and the process is the same."""

    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        assert follower.broker is not None
        follower.broker.fetchers.end()
        follower.host.disk.flip_bit(log_path(follower), 65)
        client = await cluster.connect(follower.id)
        assert await read_on(client, 0, []) == 0, "what is damaged is told"
        repaired = follower.broker.damaged
        await cluster.until(lambda: repaired.repaired_count == 1, "it is repaired")
        await asyncio.sleep(3)
        for node in cluster.nodes.values():
            assigned = node.broker.image.topics.partition("t", 0) if node.broker is not None else None
            assert assigned is not None and follower.id not in assigned.isr

    with Cluster(6, replica_lag_time_max_ms=2000) as cluster:
        cluster.live(story)


def test_only_what_lies_behind_the_damage_is_fetched_again() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await written(cluster, segment_bytes=500)
        assert leader.broker is not None
        partition = leader.broker.replicas.get("t", 0)
        assert partition is not None and len(partition.log.segments) > 5
        third = partition.log.segments[3]
        leader.host.disk.flip_bit(third.path(".log"), 65)
        assert await read_all(cluster) == list(range(VALUES))
        await cluster.until(lambda: is_whole(cluster), "the replica is in sync again", 60)
        (aside,) = stray(leader.host.disk, log_path(leader))
        directory = log_path(leader).rpartition("/")[0].rpartition("/")[0]
        offsets = [int(name[:20]) for name in leader.host.disk.list_directory(f"{directory}/{aside}") if "log" in name]
        assert min(offsets) == third.base_offset

    with Cluster(5) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_whose_name_is_used_again_waits_for_the_repair_of_the_former_one(seed: int) -> None:
    """The repair is at work on the files of the very directory that the new topic's log is to have."""

    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        leader.host.disk.flip_bit(log_path(leader), 65)
        leader.host.disk.faults.slow_factor = 3000
        reading = asyncio.create_task(read_all(cluster))
        await cluster.until(lambda: is_out(leader), "under repair")
        reading.cancel()
        reply = await cluster.ask_any(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
        assert reply.responses[0].error_code == ErrorCode.NONE
        await cluster.create("t", 1, 3)
        leader.host.disk.faults.slow_factor = 1
        await cluster.until(lambda: is_whole(cluster), "in sync", 60)
        assert len({each for node in cluster.nodes.values() for each in topic_ids(node)}) == 1

    with Cluster(seed) as cluster:
        cluster.live(story)


def test_the_damaged_log_of_a_former_topic_is_set_aside() -> None:
    """The replica was down while its topic was deleted and the name used again: there is nothing to repair."""

    async def story(cluster: Cluster) -> None:
        leader = await written(cluster)
        path = log_path(leader)
        leader.kill()
        leader.host.disk.flip_bit(path, 65)
        reply = await cluster.ask_any(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
        assert reply.responses[0].error_code == ErrorCode.NONE
        await cluster.create("t", 1, 3)
        leader.boot()
        await cluster.settled()
        await cluster.until(lambda: is_whole(cluster), "in sync", 60)
        assert len({each for node in cluster.nodes.values() for each in topic_ids(node)}) == 1
        assert leader.broker is not None and not leader.broker.damaged.found_count
        assert len(stray(leader.host.disk, path)) == 1

    with Cluster(3) as cluster:
        cluster.live(story)
