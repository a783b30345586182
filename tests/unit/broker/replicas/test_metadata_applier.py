"""What the metadata says becomes this broker's partitions, at start and with every change."""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.support.node import Node, batch, serve_and


def test_internal_topics_are_marked_at_their_creation_and_at_every_start() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("__consumer_offsets", 2)
        await client.create("t")
        for _ in range(2):
            marks = {each.topic: each.is_internal for each in node.broker.replicas}
            assert marks == {"__consumer_offsets": True, "t": False}
            node.host.kill()
            node.boot()
            await node.connect()

    serve_and(story)


def test_partitions_have_the_leader_and_the_epoch_that_the_metadata_gives() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", 2)
        for index in range(2):
            partition = node.broker.replicas.by_id[topic_id][index]
            assigned = node.broker.image.topics.by_id[topic_id].partitions[index]
            assert (partition.leader_id, partition.leader_epoch) == (assigned.leader, assigned.leader_epoch)
            assert partition.isr == (1,)

    serve_and(story)


def test_a_topic_deleted_while_the_broker_is_away_is_gone_when_it_comes_back() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.create("stays")
        await client.produce("stays", batch("a"))
        client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        await client.reply()
        node.host.kill()
        node.boot()
        client = await node.connect()
        await asyncio.sleep(1)
        assert [each.topic for each in node.broker.replicas] == ["stays"]
        assert (await client.fetch("stays")).high_watermark == 1

    serve_and(story)


def test_a_setting_without_effect_is_told_once_whatever_the_number_of_topics(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("a", "b"):
            await client.create(name, preallocate="true")
        first = [each.message for each in caplog.records if "has no effect" in each.message]
        assert [each.partition(" has no effect")[0] for each in first] == [
            "set on topic a: preallocate",
        ]
        caplog.clear()
        node.host.kill()
        node.boot()
        await node.connect()
        again = [each.message for each in caplog.records if "preallocate has no effect" in each.message]
        assert [each.partition(": ")[0] for each in again] == ["set on topic a and on 1 more topics"]

    serve_and(story)
