"""Topics of many partitions: made and deleted a slice at a time, while everything else goes on."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.replicas import partition_work
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.support.node import Client, Node, batch, fetch_request, produce_request, serve_and

WIDE = 60


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_work, "SLICE_COUNT", 2)


def ask_for(client: Client, topic: str) -> None:
    client.send(CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=WIDE, replication_factor=1)]), 7)


async def delete(client: Client, topic: str) -> None:
    reply = await client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    assert reply.responses[0].error_code == 0


async def until_known(node: Node, topic: str) -> bytes:
    while (found := node.broker.image.topics.by_name(topic)) is None:
        await asyncio.sleep(0.0001)
    return found.id


def directories(node: Node, topic: str) -> list[str]:
    names = node.host.disk.list_directory("/data")
    return [name for name in names if name.startswith(f"{topic}-") and "." not in name]


def test_the_reply_comes_when_every_partition_takes_records() -> None:
    async def story(node: Node) -> None:
        client, other, reader = [await node.connect() for _ in range(3)]
        last = WIDE - 1
        ask_for(client, "wide")
        await until_known(node, "wide")
        other.send(produce_request("wide", batch("a"), partition=last), 9)
        reader.send(fetch_request([("wide", last, 0)]), 12)
        refused = (await other.reply()).responses[0].partition_responses[0].error_code
        assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await reader.reply()).responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await client.reply()
        for index in (0, last):
            assert (await other.produce("wide", batch("a"), partition=index)).error_code == 0
        assert len(directories(node, "wide")) == WIDE

    serve_and(story)


def test_a_topic_deleted_and_made_again_while_it_is_being_made_is_the_new_one() -> None:
    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        ask_for(client, "wide")
        first_id = await until_known(node, "wide")
        await asyncio.sleep(0.001)
        await delete(other, "wide")
        ask_for(other, "wide")
        await other.reply()
        topic_id = await until_known(node, "wide")
        assert topic_id != first_id
        partitions = node.broker.replicas.by_name["wide"]
        assert len(partitions) == WIDE
        assert {each.topic_id for each in partitions.values()} == {topic_id}
        assert {each.log.topic_id for each in partitions.values()} == {topic_id}
        await client.reply()
        await asyncio.sleep(120)
        assert len(directories(node, "wide")) == WIDE

    serve_and(story)


def test_what_was_deleted_when_the_node_stops_is_not_found_again() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("wide", WIDE)
        await client.create("stays", 2)
        client.send(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000), 5)
        while node.broker.image.topics.by_name("wide") is not None:
            await asyncio.sleep(0.0001)
        assert len(directories(node, "wide")) > 2
        await node.broker.partition_work.finish()
        assert directories(node, "wide") == [], "those of the slice that was under way as well"
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        assert directories(node, "wide") == []
        node.boot()
        client = await node.connect()
        assert (await client.produce("stays", batch("a"), partition=1)).error_code == 0
        assert [name for name in node.host.disk.list_directory("/data") if "stray" in name] == []

    serve_and(story)


def test_a_stop_that_comes_in_the_midst_of_a_job_ends() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        ask_for(client, "wide")
        await until_known(node, "wide")
        assert len(directories(node, "wide")) < WIDE
        await node.broker.tasks.stop()  # as when the metadata brings jobs after the stop waited for those before
        await asyncio.wait_for(node.broker.partition_work.finish(), 5)
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)

    serve_and(story)


def test_a_node_that_dies_while_it_makes_partitions_makes_the_rest_when_it_comes_back() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        ask_for(client, "wide")
        await until_known(node, "wide")
        await asyncio.sleep(0.001)
        node.host.kill()
        node.boot()
        client = await node.connect()
        for index in range(WIDE):
            assert (await client.produce("wide", batch("a"), partition=index)).error_code == 0

    serve_and(story)


def test_a_directory_that_fails_while_many_are_made_leaves_them_to_the_others() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.host.disk.break_directory("/data2")
        await client.create("wide", WIDE)
        assert list(node.broker.logs.offline) == ["/data2"]
        for index in range(WIDE):
            assert (await client.produce("wide", batch("a"), partition=index)).error_code == 0

    serve_and(story, log_dirs="/data,/data2")
