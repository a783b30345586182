"""Whom clients are sent to: the new leader after a refusal, and the follower in their own rack."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.cluster import Cluster
from tests.support.node import batch, fetch_request, produce_request

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
Story = Callable[[Cluster], Awaitable[None]]


def live(story: Story, **properties: str) -> None:
    cluster = Cluster(1)
    for node in cluster.nodes.values():
        node.properties["broker.rack"] = f"rack-{node.id}"
        node.properties |= {name.replace("_", "."): value for name, value in properties.items()}
    with cluster:
        cluster.live(story)


async def ask(cluster: Cluster, node_id: int, request: object, version: int) -> Any:
    client = await cluster.connect(node_id)
    try:
        return await client.ask(request, version)
    finally:
        client.close()


def topic_id(cluster: Cluster, name: str) -> bytes:
    broker = cluster.nodes[1].broker
    assert broker is not None
    topic = broker.image.topics.by_name(name)
    assert topic is not None
    return topic.id


async def settled_with_topic(cluster: Cluster) -> tuple[int, int, bytes]:
    """(its leader, a follower in sync, the topic's id), after some records."""
    await cluster.settled()
    await cluster.create("t")
    leader = -1
    while leader < 1:
        leader = await cluster.leader("t")
    follower = next(each for each in cluster.nodes if each != leader)
    answer = await ask(cluster, leader, produce_request("t", batch("a", "b", "c")), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    await asyncio.sleep(2)
    return leader, follower, topic_id(cluster, "t")


def test_a_refused_produce_names_the_leader_and_where_it_is() -> None:
    async def story(cluster: Cluster) -> None:
        leader, follower, topic = await settled_with_topic(cluster)
        for version, name in ((12, "t"), (13, topic)):
            reply = await ask(cluster, follower, produce_request(name, batch("a")), version)
            answer = reply.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader.leader_id == leader and answer.current_leader.leader_epoch >= 0
            node = reply.node_endpoints
            assert [(each.node_id, each.host, each.rack) for each in node] == [
                (leader, f"broker-{leader}", f"rack-{leader}")
            ]
        reply = await ask(cluster, follower, produce_request("t", batch("a")), 9)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    live(story)


def test_a_refused_fetch_names_the_leader_and_where_it_is() -> None:
    async def story(cluster: Cluster) -> None:
        leader, _, topic = await settled_with_topic(cluster)
        broker = cluster.nodes[leader].broker
        assert broker is not None
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        partition.leader_epoch += 1  # the client's is an old one
        wish = fetch_request([(topic, 0, 0)], current_leader_epoch=partition.leader_epoch - 1)
        reply = await ask(cluster, leader, wish, 16)
        data = reply.responses[0].partitions[0]
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert data.current_leader.leader_epoch == partition.leader_epoch
        assert [each.node_id for each in reply.node_endpoints] == [leader]
        reply = await ask(cluster, leader, wish, 15)
        assert reply.responses[0].partitions[0].current_leader is None
        assert reply.node_endpoints == []

    live(story)


def test_a_consumer_is_sent_to_the_follower_in_its_rack_and_reads_there() -> None:
    async def story(cluster: Cluster) -> None:
        leader, follower, topic = await settled_with_topic(cluster)
        wish = fetch_request([(topic, 0, 1)], max_wait_ms=5000)
        wish.rack_id = f"rack-{follower}"
        data = (await ask(cluster, leader, wish, 13)).responses[0].partitions[0]
        assert data.preferred_read_replica == follower and not data.records
        data = (await ask(cluster, follower, wish, 13)).responses[0].partitions[0]
        assert data.error_code == 0 and data.records and data.high_watermark == 3
        for rack in ("", "elsewhere", f"rack-{leader}"):
            wish.rack_id = rack
            data = (await ask(cluster, leader, wish, 13)).responses[0].partitions[0]
            assert data.preferred_read_replica == -1 and data.records

    live(story, replica_selector_class=RACK_AWARE)


def test_a_follower_outside_the_set_is_nobodys_choice() -> None:
    async def story(cluster: Cluster) -> None:
        leader, follower, topic = await settled_with_topic(cluster)
        broker = cluster.nodes[leader].broker
        assert broker is not None
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        partition.isr = tuple(each for each in partition.isr if each != follower)
        wish = fetch_request([(topic, 0, 1)])
        wish.rack_id = f"rack-{follower}"
        data = (await ask(cluster, leader, wish, 13)).responses[0].partitions[0]
        assert data.preferred_read_replica == -1

    live(story, replica_selector_class=RACK_AWARE)


def test_without_a_selector_the_leader_serves_everybody() -> None:
    async def story(cluster: Cluster) -> None:
        leader, follower, topic = await settled_with_topic(cluster)
        wish = fetch_request([(topic, 0, 1)])
        wish.rack_id = f"rack-{follower}"
        assert (await ask(cluster, leader, wish, 13)).responses[0].partitions[0].preferred_read_replica == -1

    live(story)


def test_a_follower_shows_nothing_past_its_high_watermark_and_refuses_what_it_has_not() -> None:
    async def story(cluster: Cluster) -> None:
        _, follower, topic = await settled_with_topic(cluster)
        broker = cluster.nodes[follower].broker
        assert broker is not None
        partition = broker.replicas.get("t", 0)
        assert partition is not None and partition.high_watermark == 3
        partition.high_watermark = 1
        data = (await ask(cluster, follower, fetch_request([(topic, 0, 1)]), 13)).responses[0].partitions[0]
        assert data.error_code == 0 and not data.records
        data = (await ask(cluster, follower, fetch_request([(topic, 0, 4)]), 13)).responses[0].partitions[0]
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    live(story)


def test_a_new_leader_tells_no_end_before_it_knows_what_is_committed() -> None:
    """The one before may have told a later one: consumers would see the end go back."""

    async def story(cluster: Cluster) -> None:
        leader, _, _ = await settled_with_topic(cluster)
        broker = cluster.nodes[leader].broker
        assert broker is not None
        partition = broker.replicas.get("t", 0)
        assert partition is not None and partition.leadership is not None
        partition.leadership.epoch_start_offset = 9
        wish = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wish])])
        for version, error in ((7, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
            answer = (await ask(cluster, leader, request, version)).topics[0].partitions[0]
            assert answer.error_code == error
        wish.timestamp = -2
        assert (await ask(cluster, leader, request, 7)).topics[0].partitions[0].offset == 0
        wish.timestamp = 1 << 60
        answer = (await ask(cluster, leader, request, 7)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE

    live(story)
