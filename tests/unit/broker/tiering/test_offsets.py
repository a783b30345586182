"""ListOffsets over both tiers."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.support.node import Client, Node
from tests.support.tiered_node import copied, partition_of, serve_tiered, tiered_topic, until

BATCHES = 20
VERSION = 11


async def offset_of(client: Client, timestamp: int) -> ListOffsetsPartitionResponse:
    wish = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wish])])
    reply = await client.ask(request, VERSION)
    answer: ListOffsetsPartitionResponse = reply.topics[0].partitions[0]
    return answer


async def two_tiers(node: Node, client: Client) -> None:
    """Offset n has the timestamp 1000 + 10 n."""
    await tiered_topic(client, local_retention_bytes=1)
    for number in range(BATCHES):
        records = [Record(key=b"k", value=b"v" * 60, timestamp=1000 + 10 * (2 * number + each)) for each in range(2)]
        assert (await client.produce("t", build_batch(records))).error_code == 0
    log = partition_of(node).log
    await until(lambda: log.segments == [log.active], "the copied segments are deleted here")


def test_the_positions_of_tiered_storage() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await two_tiers(node, client)
        local = partition_of(node).log.active.base_offset
        found = {position: (await offset_of(client, position)).offset for position in (-1, -2, -4, -5, -6)}
        assert found == {-1: 2 * BATCHES, -2: 0, -4: local, -5: local - 1, -6: local}

    serve_tiered(story)


def test_the_positions_of_a_tiered_topic_before_its_first_copy() -> None:
    """As Apache Kafka 4.3.1 answers: no record waits for a copy in an empty log."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client)
        positions = (-1, -2, -4, -5, -6)
        assert [(await offset_of(client, each)).offset for each in positions] == [0, 0, 0, -1, -1]
        assert (await client.produce("t", build_batch([Record(key=b"k", value=b"v", timestamp=0)]))).error_code == 0
        assert [(await offset_of(client, each)).offset for each in positions] == [1, 0, 0, -1, 0]

    serve_tiered(story)


def test_log_directories_have_the_size_of_the_local_files() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await two_tiers(node, client)
        topics = [DescribableLogDirTopic(topic="t", partitions=[0])]
        reply = await client.ask(DescribeLogDirsRequest(topics=topics), 4)
        found = [each for result in reply.results for topic in result.topics for each in topic.partitions]
        log = partition_of(node).log
        assert [(each.partition_size, each.offset_lag) for each in found] == [(log.active.size, 0)]
        assert sum(each.size for each in copied(node)) > log.active.size

    serve_tiered(story)


def test_the_positions_of_a_topic_without_tiering() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, remote_storage_enable="false")
        found = {position: (await offset_of(client, position)).offset for position in (-1, -2, -4, -5, -6)}
        assert found == {-1: 0, -2: 0, -4: 0, -5: -1, -6: -1}

    serve_tiered(story)


@pytest.mark.parametrize("offset", [0, 1, 5, 20, 2 * BATCHES - 1])
def test_a_time_is_found_in_either_tier(offset: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await two_tiers(node, client)
        for timestamp in (1000 + 10 * offset, 1000 + 10 * offset - 3):
            answer = await offset_of(client, timestamp)
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, 1000 + 10 * offset)
        assert (await offset_of(client, 10_000)).offset == -1

    serve_tiered(story)


def test_a_storage_that_is_away_is_a_retriable_error() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await two_tiers(node, client)
        node.host.storage_faults.is_away = True
        assert (await offset_of(client, 1000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await offset_of(client, -2)).error_code == 0
        node.host.storage_faults.is_away = False
        assert (await offset_of(client, 1000)).offset == 0

    serve_tiered(story)


def test_a_search_ends_with_the_time_that_it_may_take() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await two_tiers(node, client)
        node.host.storage_faults.slow, node.host.storage_faults.slow_s = 1.0, 30.0
        assert (await offset_of(client, 1000)).error_code == ErrorCode.REQUEST_TIMED_OUT

    serve_tiered(story, remote_list_offsets_request_timeout_ms=1000)
