"""A topic's name used again is another topic: no replica brings anything of the former one into it.

Whatever a replica misses between the deletion and the creation, it has the new id afterwards, and the records that were
written under that id alone. Both topics begin in leader epoch 0 and at offset 0, so that nothing in the batches parts
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.record_reader import records_of
from moldau.replication.partition import Partition
from tests.support.cluster import Cluster, ClusterNode
from tests.support.node import Closed, batch

Return: TypeAlias = Callable[[], Awaitable[None]]
Absence: TypeAlias = Callable[[Cluster, ClusterNode], Awaitable[Return]]
"""Takes a node out, and gives what brings it back."""
OLD: Final = tuple(f"old-{number}" for number in range(5))
NEW: Final = ("new-0", "new-1")
"""Fewer than before: a log that was kept would be cut to as many, and agree about its epochs."""
MANY: Final = 45
"""Partitions: more than are made at once."""
FENCED_S: Final = 10.0
AGREED_S: Final = 20.0
SNAPSHOT_BYTES: Final = 600
TOPIC_RESOURCE: Final = 2
LOSSES: Final = 4
"""Losses of power: each takes another part of what was not synced."""


async def written(cluster: Cluster, *values: str) -> None:
    """One batch each, under acks=all."""
    for value in values:
        for _ in range(200):
            client = await cluster.connect(await cluster.led("t"))
            try:
                answer = await client.produce("t", batch(value))
            except Closed:
                continue
            finally:
                client.close()
            if answer.error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError(f"{value} is not acknowledged: {answer}")


async def settled_topic(cluster: Cluster) -> None:
    await cluster.settled()
    await cluster.create("t", retention_ms=-1)
    await written(cluster, *OLD)
    await holds(cluster, OLD)


async def deleted(cluster: Cluster) -> None:
    reply = await cluster.ask_any(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
    assert reply.responses[0].error_code == ErrorCode.NONE, reply


def follower_of(cluster: Cluster, leader_id: int) -> ClusterNode:
    """One that neither leads the topic nor the quorum."""
    quorum = cluster.leader_of_quorum()
    return next(node for node in cluster.nodes.values() if node.id != leader_id and node is not quorum)


def replica_on(node: ClusterNode) -> Partition | None:
    if not node.is_up or node.broker is None or not hasattr(node.broker, "replicas"):
        return None
    return node.broker.replicas.get("t", 0)


def values_in(node: ClusterNode, partition: Partition) -> list[str]:
    stored = b"".join(bytes(node.host.disk.peek(each.path(".log")))[: each.size] for each in partition.log.segments)
    return [
        (record.value or b"").decode()
        for place, header in iterate_batches(stored)
        for record in records_of(stored, place, header)
    ]


async def holds(cluster: Cluster, values: tuple[str, ...]) -> None:
    """Every replica has the id that the metadata has, these records, all of them committed, and is in sync."""

    def told() -> dict[int, object]:
        apart: dict[int, object] = {}
        for node in cluster.nodes.values():
            partition = replica_on(node)
            if partition is None or node.broker is None:
                apart[node.id] = "no replica"
                continue
            topic = node.broker.image.topics.by_name("t")
            assert topic is not None
            held = (partition.topic_id == partition.log.topic_id == topic.id, values_in(node, partition))
            committed = (partition.high_watermark, len(topic.partitions[0].isr))
            if held != (True, list(values)) or committed != (len(values), len(topic.partitions[0].replicas)):
                apart[node.id] = held, committed
        return apart

    try:
        await cluster.until(lambda: not told(), "replicas of one topic", AGREED_S)
    except AssertionError as error:
        raise AssertionError(f"the topic has {values}, and there is {told()}") from error


def used_again(seed: int, meanwhile: Absence) -> None:
    """`meanwhile` takes a follower out of it, and gives what brings it back."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        come_back = await meanwhile(cluster, follower_of(cluster, await cluster.led("t")))
        await deleted(cluster)
        await cluster.create("t", retention_ms=-1)
        await written(cluster, *NEW)
        await come_back()
        await holds(cluster, NEW)

    with Cluster(
        seed,
        replica_lag_time_max_ms=2000,
        broker_session_timeout_ms=2000,
        metadata_log_max_record_bytes_between_snapshots=SNAPSHOT_BYTES,
        metadata_max_retention_bytes=4000,
    ) as cluster:
        cluster.live(story)


async def at_once() -> None:
    """Nobody was away."""


def a_name_used_again_is_another_topic(seed: int) -> None:
    async def nothing(cluster: Cluster, follower: ClusterNode) -> Return:
        return at_once

    used_again(seed, nothing)


def who_was_down_takes_nothing_of_a_former_topic(seed: int) -> None:
    """It reads of the deletion and of the creation in their order."""
    was_down(seed, skips=False)


def who_was_down_and_skips_takes_nothing_of_a_former_topic(seed: int) -> None:
    """It begins with a snapshot, in which the name is that of the new topic, and finds the log of the old one."""
    was_down(seed, skips=True)


def who_lost_the_topic_id_takes_nothing_of_a_former_topic(seed: int) -> None:
    """A loss of power took the file with the topic id, and left the records: nothing says whose they are."""
    was_down(seed, skips=True, loses_id=True)


def was_down(seed: int, *, skips: bool, loses_id: bool = False) -> None:
    async def killed(cluster: Cluster, follower: ClusterNode) -> Return:
        follower.kill()
        if loses_id:
            follower.host.disk.unlink("/data/t-0/partition.metadata")
        await cluster.until(lambda: is_fenced(cluster, follower), "fenced", FENCED_S)

        async def come_back() -> None:
            if skips:
                await forgotten(cluster)
            follower.boot()
            await cluster.settled()

        return come_back

    used_again(seed, killed)


def who_skips_to_a_snapshot_takes_nothing_of_a_former_topic(seed: int) -> None:
    """The snapshot has the new topic under the name, and says nothing of the deletion."""

    async def isolated(cluster: Cluster, follower: ClusterNode) -> Return:
        others = [node.host.name for node in cluster.nodes.values() if node is not follower]
        cluster.world.network.partition([follower.host.name], others)
        await cluster.until(lambda: is_fenced(cluster, follower), "fenced", FENCED_S)

        async def come_back() -> None:
            await forgotten(cluster)
            cluster.world.network.heal()
            await cluster.settled()

        return come_back

    used_again(seed, isolated)


def is_fenced(cluster: Cluster, node: ClusterNode) -> bool:
    leader = cluster.leader_of_quorum()
    known = leader.broker.image.cluster.brokers.get(node.id) if leader is not None and leader.broker else None
    return known is not None and known.fenced


async def forgotten(cluster: Cluster) -> None:
    """Metadata is written until nobody who leads the quorum has its log from here on."""
    leader = cluster.leader_of_quorum()
    assert leader is not None and leader.broker is not None
    offset = leader.broker.image.provenance.end_offset
    for number in range(400):
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.broker is not None
        if leader.broker.quorum.opened.log.log.log_start_offset > offset:
            return
        setting = AlterableConfig(name="segment.ms", config_operation=0, value=str(10**8 + number))
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[setting])
        await cluster.ask_any(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    raise AssertionError("no snapshot took the place of the log")


def what_is_made_for_a_topic_that_goes_is_not_served(seed: int) -> None:
    """Its many logs are made beside the loop, on a slow disk: it is deleted, and its name used again, before they are
    there."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        for node in cluster.nodes.values():
            node.host.disk.faults.slow_factor = 300
        await cluster.create("t", MANY, retention_ms=-1)
        await deleted(cluster)
        await cluster.create("t", retention_ms=-1)
        for node in cluster.nodes.values():
            node.host.disk.faults.slow_factor = 1
        await written(cluster, *NEW)
        await holds(cluster, NEW)

    with Cluster(seed) as cluster:
        cluster.live(story)


def what_was_acknowledged_has_its_topic_id(seed: int) -> None:
    """The process that made the log is killed before the first flush. What the next process acknowledges is served
    after a loss of power, so the topic id is durable as well."""

    async def story(cluster: Cluster) -> None:
        node = cluster.nodes[1]
        for end in (node.kill, node.crash):
            await cluster.settled()
            if end == node.kill:
                await cluster.create("t", replication_factor=1, flush_messages=1, retention_ms=-1)
            else:
                await written(cluster, *NEW)
            end()
            node.boot()
        await cluster.settled()
        await holds(cluster, NEW)

    for each in range(LOSSES):
        with Cluster(seed * LOSSES + each, nodes=1) as cluster:
            cluster.live(story)


ALL: Final[tuple[Callable[[int], None], ...]] = (
    a_name_used_again_is_another_topic,
    what_is_made_for_a_topic_that_goes_is_not_served,
    what_was_acknowledged_has_its_topic_id,
    who_was_down_takes_nothing_of_a_former_topic,
    who_was_down_and_skips_takes_nothing_of_a_former_topic,
    who_lost_the_topic_id_takes_nothing_of_a_former_topic,
    who_skips_to_a_snapshot_takes_nothing_of_a_former_topic,
)
