"""A broker leaves its cluster while clients write: its replicas move, nothing is lost, and it is registered no more,
whatever dies meanwhile.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest

from moldau.broker.runtime.place import EXIT_LEFT_CLUSTER, MachineProcesses
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.support.cluster import Cluster
from tests.support.node import Closed, batch
from tests.support.share_consumer import values_of

LEAVER = 4
HEIRS = (2, 3)
PARTITIONS = 6
ALONE, PAIRS = "alone", "pairs"
"""Topics of one replica, and of two."""


async def write(cluster: Cluster, written: dict[tuple[str, int], list[bytes]]) -> None:
    """Write records one by one for as long as the story lets it, and note the acknowledged ones."""
    count = 0
    while True:
        count += 1
        topic, index = (ALONE, PAIRS)[count % 2], count % PARTITIONS
        value = f"{count}"
        while True:
            try:
                client = await cluster.connect(await cluster.led(topic, index))
                answer = await asyncio.wait_for(client.produce(topic, batch(value), partition=index), 5)
                client.close()
            except (OSError, Closed, TimeoutError):
                answer = None
            if answer is not None and answer.error_code == ErrorCode.NONE:
                written.setdefault((topic, index), []).append(value.encode())
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.02)


async def read(cluster: Cluster, topic: str, index: int) -> list[bytes]:
    """All records of a partition."""
    while True:
        client = await cluster.connect(await cluster.led(topic, index))
        found = await client.fetch(topic, partition=index)
        client.close()
        if found.error_code == ErrorCode.NONE:
            return values_of(bytes(cast("bytes", found.records or b"")))
        await asyncio.sleep(0.05)


def begin_to_leave(cluster: Cluster) -> None:
    node = cluster.nodes[LEAVER]
    node.place = MachineProcesses((2, 3, LEAVER), "", HEIRS)
    node.boot()


async def stopped(cluster: Cluster, node_id: int) -> None:
    cluster.nodes[node_id].stop()
    await cluster.until(lambda: not cluster.nodes[node_id].is_up, "the node stops")


def held(cluster: Cluster) -> list[str]:
    """The partitions that name the broker, by the metadata of an heir."""
    broker = cluster.nodes[2].broker
    assert broker is not None
    return [
        f"{topic.name}-{index}" for topic, index, each in broker.image.topics.partitions() if LEAVER in each.replicas
    ]


def is_registered(cluster: Cluster) -> bool:
    broker = cluster.nodes[2].broker
    assert broker is not None
    return LEAVER in broker.image.cluster.brokers


async def with_topics(cluster: Cluster) -> tuple[dict[tuple[str, int], list[bytes]], asyncio.Task[None]]:
    await cluster.settled()
    await cluster.create(ALONE, PARTITIONS, 1)
    await cluster.create(PAIRS, PARTITIONS, 2)
    written: dict[tuple[str, int], list[bytes]] = {}
    writing = asyncio.ensure_future(write(cluster, written))
    await asyncio.sleep(3)
    assert held(cluster), "it has something to give away"
    return written, writing


async def check(cluster: Cluster, written: dict[tuple[str, int], list[bytes]], writing: asyncio.Task[None]) -> None:
    assert cluster.nodes[LEAVER].exit_status == EXIT_LEFT_CLUSTER
    await cluster.until(lambda: not is_registered(cluster), "the heirs hear of it", limit_s=2)
    assert not held(cluster)
    await asyncio.sleep(1)
    assert not writing.done()
    writing.cancel()
    for (topic, index), values in written.items():
        found = await read(cluster, topic, index)
        assert set(values) <= set(found), f"{topic}-{index} has lost records"


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_leaves_while_clients_write(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        written, writing = await with_topics(cluster)
        await stopped(cluster, LEAVER)
        begin_to_leave(cluster)
        await cluster.until(
            lambda: cluster.nodes[LEAVER].is_up and cluster.nodes[LEAVER].broker is not None, "it starts"
        )
        await cluster.until(lambda: not cluster.nodes[LEAVER].is_up, "it leaves")
        await check(cluster, written, writing)

    with Cluster(seed, nodes=4, controllers=1) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", range(6))
def test_it_leaves_whatever_dies_meanwhile(seed: int) -> None:
    """The leaver, an heir or the controller is killed at random moments, and starts again."""
    random = Random(seed)

    async def story(cluster: Cluster) -> None:
        written, writing = await with_topics(cluster)
        await stopped(cluster, LEAVER)
        begin_to_leave(cluster)
        for _ in range(4):
            await asyncio.sleep(random.uniform(0.1, 3))
            victim = cluster.nodes[random.choice([1, 2, 3, LEAVER])]
            if victim.id == LEAVER and not victim.is_up:
                continue  # It has left.
            victim.kill()
            await asyncio.sleep(random.uniform(0.1, 2))
            victim.boot()
        node = cluster.nodes[LEAVER]
        await cluster.until(lambda: not node.is_up, "it leaves", limit_s=200)
        await cluster.settled()
        if node.exit_status != EXIT_LEFT_CLUSTER or is_registered(cluster):
            # It was killed after it had gone: the supervisor starts it once more, and it leaves again.
            begin_to_leave(cluster)
            await cluster.until(lambda: node.is_up and node.broker is not None, "it starts")
            await cluster.until(lambda: not node.is_up, "it leaves", limit_s=200)
        await check(cluster, written, writing)

    with Cluster(seed, nodes=4, controllers=1) as cluster:
        cluster.live(story)


def test_a_broker_that_is_stopped_while_it_leaves_stays_in_the_cluster() -> None:
    async def story(cluster: Cluster) -> None:
        _, writing = await with_topics(cluster)
        await stopped(cluster, LEAVER)
        for heir in HEIRS:
            await stopped(cluster, heir)
        begin_to_leave(cluster)
        await cluster.until(lambda: cluster.nodes[LEAVER].broker is not None, "it starts")
        await asyncio.sleep(5)
        await stopped(cluster, LEAVER)
        assert cluster.nodes[LEAVER].exit_status == 0, "no heir serves, and so nothing could move"
        for heir in HEIRS:
            cluster.nodes[heir].boot()
        await cluster.settled()
        assert held(cluster) and is_registered(cluster)
        writing.cancel()

    with Cluster(7, nodes=4, controllers=1) as cluster:
        cluster.live(story)


def test_a_broker_that_leaves_gets_no_new_replicas_and_may_stay_after_all() -> None:
    """With no heir that serves it has to wait, and topics are created elsewhere; started without heirs it takes
    replicas again.
    """

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[LEAVER])
        kept = CreatableTopic(name="kept", num_partitions=-1, replication_factor=-1, assignments=[assignment])
        client = await cluster.connect(2)
        assert not (await client.ask(CreateTopicsRequest(topics=[kept]), 7)).topics[0].error_code
        await stopped(cluster, LEAVER)
        node = cluster.nodes[LEAVER]
        node.place = MachineProcesses((2, 3, LEAVER), "", (9,))
        node.boot()
        await cluster.until(lambda: node.broker is not None, "it starts")
        await cluster.settled()
        assert node.is_up, "it holds a replica that no heir can take"
        await asyncio.sleep(1)
        await cluster.create("new", 12, 1)
        await asyncio.sleep(1)
        assert held(cluster) == ["kept-0"]
        await stopped(cluster, LEAVER)
        node.place = None
        node.boot()
        await cluster.settled()
        await cluster.create("newer", 12, 1)
        await cluster.until(lambda: len(held(cluster)) == 5, "a third of the new partitions are there", limit_s=2)

    with Cluster(3, nodes=4, controllers=1) as cluster:
        cluster.live(story)
