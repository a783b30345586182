"""Topics from their creation over their description to their removal from the disk."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.apis.needs import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.schema import ZERO_UUID
from tests.support.node import CONTROLLER_PORT, HOST, PORT, Client, Node, batch, produce_request, serve_and


async def metadata(
    client: Client, *names: str | bytes | None, version: int = 12, creates: bool = False, **fields: bool
) -> MetadataResponse:
    """Topics by name or by id."""
    topics = [
        MetadataRequestTopic(name=None, topic_id=name) if isinstance(name, bytes) else MetadataRequestTopic(name=name)
        for name in names
    ]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=creates, **fields)
    reply: MetadataResponse = await client.ask(request, version)
    return reply


def errors(reply: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in reply.topics]


def test_metadata_of_all_of_some_and_of_no_topics() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        ids = {"a": await client.create("a", 2), "b": await client.create("b")}
        for version in range(14):
            reply = await client.ask(MetadataRequest(topics=None if version else []), version)
            assert sorted(topic.name for topic in reply.topics) == ["a", "b"]
            (broker,) = reply.brokers
            assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, HOST, PORT, None)
            assert reply.controller_id == (1 if version else -1)
            reply = await metadata(client, "a", version=version)
            (topic,) = reply.topics
            assert topic.topic_id == (ids["a"] if version >= 10 else ZERO_UUID)
            assert [each.partition_index for each in topic.partitions] == [0, 1]
            assert {(each.leader_id, *each.replica_nodes, *each.isr_nodes) for each in topic.partitions} == {(1, 1, 1)}
        assert (await metadata(client)).topics == []
        assert errors(await metadata(client, ids["b"], b"\7" * 16)) == [("b", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]

    serve_and(story)


def test_metadata_of_what_is_not_there_may_create_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert errors(await metadata(client, "new")) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        await asyncio.sleep(1)
        assert errors(await metadata(client, "new", creates=True)) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        await asyncio.sleep(1)
        assert errors(await metadata(client, "new")) == [("new", 0)]
        invalid = ["a/b", "", ".", "x" * 250]
        assert errors(await metadata(client, *invalid, creates=True)) == [(name, 17) for name in invalid]

    serve_and(story)


def test_metadata_creates_no_more_at_once_than_one_request_may() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        unknown = [(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in "ab"]
        assert errors(await metadata(client, "a", "b", creates=True)) == unknown
        await asyncio.sleep(5)
        assert errors(await metadata(client, "a", "b")) == unknown

    serve_and(story, num_partitions=5001)


def test_nothing_is_created_where_the_broker_does_not_allow_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await metadata(client, "new", creates=True)
        await asyncio.sleep(1)
        assert errors(await metadata(client, "new")) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]

    serve_and(story, auto_create_topics_enable="false")


def test_metadata_names_each_topic_once() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("a")
        assert errors(await metadata(client, "a", "a", "u", "u")) == [("a", 0), ("u", 3)]
        assert errors(await metadata(client, topic_id, topic_id)) == [("a", 0)]

    serve_and(story)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_may_not_be_asked_by_in_the_versions_that_only_tell_them(version: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("a")
        reply = await metadata(client, topic_id, version=version)
        assert (errors(reply), reply.brokers) == ([("", ErrorCode.INVALID_REQUEST)], [])

    serve_and(story)


def test_operations_are_told_where_they_are_asked_for() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        for asks in (True, False):
            reply = await metadata(
                client,
                "a",
                version=10,
                include_topic_authorized_operations=asks,
                include_cluster_authorized_operations=asks,
            )
            assert reply.topics[0].topic_authorized_operations == (TOPIC_OPERATIONS if asks else NOT_ASKED)
            assert reply.cluster_authorized_operations == (CLUSTER_OPERATIONS if asks else NOT_ASKED)

    serve_and(story)


async def describe(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    """(topics with the partitions told, where the next page begins)"""
    reply: DescribeTopicPartitionsResponse = await client.ask(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
        ),
        0,
    )
    pages = [
        (
            topic.name or "",
            [topic.error_code] if topic.error_code else [each.partition_index for each in topic.partitions],
        )
        for topic in reply.topics
    ]
    following = reply.next_cursor
    return pages, (following.topic_name, following.partition_index) if following else None


def test_pages_of_partitions() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name, count in (("b", 3), ("a", 2), ("c", 1)):
            await client.create(name, count)
        assert await describe(client, limit=3) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
        assert await describe(client, limit=3, cursor=("b", 1)) == ([("b", [1, 2]), ("c", [0])], None)
        assert await describe(client, "b", limit=0) == ([("b", [0])], ("b", 1))
        assert await describe(client, "c", "a", limit=2) == ([("a", [0, 1])], ("c", 0))
        assert await describe(client, "b", cursor=("b", 9)) == ([("b", [])], None)
        assert await describe(client, "nope", "a/b") == ([("a/b", [17]), ("nope", [3])], None)
        assert await describe(client, "a", "zz", limit=2) == ([("a", [0, 1])], ("zz", 0))
        for cursor in (("c", 0), ("b", -1)):
            refused = [("b", [42]), ("a", [42]), ("b", [42])]
            assert await describe(client, "b", "a", "b", cursor=cursor) == (refused, None)
        assert await describe(client, cursor=("b", -1)) == ([], None)

    serve_and(story)


def test_a_long_page_is_made_in_slices() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        names = [f"t{number:03}" for number in range(0, 200, 2)]
        for name in names:
            await client.create(name, 2)
        before = node.broker.services.long_requests.handled_count
        pages, following = await describe(client, limit=180)
        assert (pages, following) == ([(name, [0, 1]) for name in names[:90]], (names[90], 0))
        assert node.broker.services.long_requests.handled_count == before + 1

    serve_and(story)


def test_the_broker_has_the_last_word_on_the_size_of_a_page() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a", 3)
        assert await describe(client, "a") == ([("a", [0, 1])], ("a", 2))

    serve_and(story, max_request_partition_size_limit=2)


def data_directories(node: Node) -> list[str]:
    names = node.host.disk.list_directory("/data")
    return sorted(name for name in names if name.startswith("t-") or name.endswith("-delete"))


def test_a_deleted_topic_leaves_the_disk_after_a_while_and_may_come_again() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        first_id = await client.create("t", 2, file_delete_delay_ms=5000)
        await client.produce("t", batch("a", "b"))
        assert data_directories(node) == ["t-0", "t-1"]
        reply = await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1), 6
        )
        assert [(each.name, each.error_code) for each in reply.responses] == [("t", 0)]
        await asyncio.sleep(0.1)
        names = data_directories(node)
        assert len(names) == 2 and all(name.endswith("-delete") for name in names)
        assert (await client.fetch("t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce("t", batch("x"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again_id = await client.create("t")
        assert again_id != first_id
        assert (await client.fetch("t")).high_watermark == 0
        await asyncio.sleep(6)
        assert data_directories(node) == ["t-0"]

    serve_and(story)


def test_what_an_earlier_process_did_not_remove_is_removed_at_start() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", file_delete_delay_ms=60_000)
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        await asyncio.sleep(0.1)
        assert len(data_directories(node)) == 1
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        node.boot()
        await node.connect()
        await asyncio.sleep(1)
        assert data_directories(node) == []

    serve_and(story)


def test_added_partitions_are_served() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        topics = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False)
        assert [each.error_code for each in (await client.ask(request, 3)).results] == [0]
        await asyncio.sleep(0.1)
        assert (await client.produce("t", batch("a"), partition=2)).error_code == 0

    serve_and(story)


def test_new_logs_go_where_there_are_fewest() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 4)
        at = [node.broker.replicas.by_name["t"][i].log.directory.rpartition("/")[0] for i in range(4)]
        assert sorted(at) == ["/data", "/data", "/data2", "/data2"]

    serve_and(story, log_dirs="/data,/data2")


def test_the_controllers_listener_does_not_serve_what_is_the_brokers() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        controller = await node.connect(CONTROLLER_PORT)
        reply = await controller.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)]), 7
        )
        assert reply.topics[0].error_code == 0, "what the controller decides may be asked of it directly"
        controller.send(produce_request("t", batch("x")), 9)
        assert await controller.reader.read() == b""

    serve_and(story)
