"""What clients ask about partitions: offsets, epochs, producers, log starts, sizes."""

from __future__ import annotations

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.support.node import Client, Node, batch, serve_and

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NOTHING = (0, -1, -1, -1)


async def filled(node: Node) -> Client:
    """A topic `t` with two batches: offsets 0 to 4, timestamps 1000, 1001, 1002, 1000, 1001."""
    client = await node.connect()
    await client.create("t", 2)
    await client.produce("t", batch("a", "b", "c"))
    await client.produce("t", batch("d", "e"))
    return client


async def list_offset(
    client: Client,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    level: int = 0,
) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch)"""
    wish = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name=topic, partitions=[wish])]
    reply = await client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics), version)
    (answer,) = reply.topics[0].partitions
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


def test_a_search_by_time_ends_at_a_record_above_the_limit_and_damages_nothing() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        records = build_batch([Record(b"k", bytes(5000), 1000)], codec=Codec.GZIP)
        assert (await client.produce("t", records)).error_code == 0
        assert await list_offset(client, 1000) == (0, 0, 1000, 0)
        change = AlterableConfig(name="max.decompressed.message.bytes", config_operation=0, value="1000")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert (await client.produce("t", records)).error_code == ErrorCode.INVALID_RECORD
        for timestamp in (1000, MAX_TIMESTAMP):
            assert await list_offset(client, timestamp) == (ErrorCode.INVALID_RECORD, -1, -1, -1)
        assert await list_offset(client, LATEST) == (0, 1, -1, 0)

    serve_and(story)


def test_special_positions_and_timestamps() -> None:
    expected = {
        LATEST: (0, 5, -1, 0),
        EARLIEST: (0, 0, -1, 0),
        MAX_TIMESTAMP: (0, 2, 1002, 0),
        EARLIEST_LOCAL: (0, 0, -1, 0),
        LATEST_TIERED: NOTHING,
        EARLIEST_PENDING_UPLOAD: NOTHING,
        0: (0, 0, 1000, 0),
        1001: (0, 1, 1001, 0),
        1003: NOTHING,
    }

    async def story(node: Node) -> None:
        client = await filled(node)
        assert {timestamp: await list_offset(client, timestamp) for timestamp in expected} == expected

    serve_and(story)


def test_special_positions_exist_from_the_version_that_brought_them() -> None:
    first = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

    async def story(node: Node) -> None:
        client = await filled(node)
        for version in range(1, 12):
            for timestamp in range(-1, -9, -1):
                error, *_ = await list_offset(client, timestamp, version=version)
                is_known = version >= first.get(timestamp, 99)
                assert error == (0 if is_known else ErrorCode.UNSUPPORTED_VERSION), (version, timestamp)
        assert (await list_offset(client, MAX_TIMESTAMP, version=6, index=99))[0] == ErrorCode.UNSUPPORTED_VERSION

    serve_and(story)


def test_offsets_that_cannot_be_told() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        for fields, error in (
            ({"topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"index": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ({"epoch": -2}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"level": 2}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ):
            assert await list_offset(client, LATEST, **fields) == (error, -1, -1, -1)
        assert await list_offset(client, LATEST, epoch=0, level=1) == (0, 5, -1, 0)

    serve_and(story)


def test_read_committed_tells_no_offset_at_or_past_the_first_open_transaction() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        partition = node.broker.replicas.by_name["t"][0]
        end = partition.log.end_offset
        sent = build_batch([Record(b"k", b"v", 5000)], producer_id=9, producer_epoch=0, is_transactional=True)
        assert partition.append_internal(sent, 1).error == 0
        assert (await client.produce("t", build_batch([Record(b"k", b"v", 6000)]))).error_code == 0
        assert await list_offset(client, LATEST, level=0) == (0, end + 2, -1, 0)
        assert await list_offset(client, LATEST, level=1) == (0, end, -1, 0)
        for timestamp in (5000, 6000, MAX_TIMESTAMP):
            assert (await list_offset(client, timestamp, level=0))[1] >= end
            assert await list_offset(client, timestamp, level=1) == (0, -1, -1, -1)
        # A new leader knows at once what is committed; that the transaction stays open says nothing else.
        assert partition.leadership is not None
        partition.leadership.epoch_start_offset = end + 2
        assert await list_offset(client, LATEST, level=1) == (0, end, -1, 0)
        partition.leadership.epoch_start_offset = end + 3
        assert (await list_offset(client, LATEST, level=1))[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        partition.leadership.epoch_start_offset = 0
        marked = partition.end_transaction(9, 0, 1, is_commit=False, coordinator_epoch=4)
        assert marked.error == 0
        assert await list_offset(client, LATEST, level=1) == (0, end + 3, -1, 0)
        assert (await list_offset(client, 5000, level=1))[1] == end, "an aborted record is found, as in Apache Kafka"

    serve_and(story)


def test_a_partition_asked_for_several_times_is_refused_once() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        wishes = [ListOffsetsPartition(partition_index=i, timestamp=LATEST) for i in (0, 1, 0, 0)]
        topics = [ListOffsetsTopic(name="t", partitions=wishes), ListOffsetsTopic(name="t", partitions=wishes[:1])]
        reply = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 11)
        answers = [(each.partition_index, each.error_code) for topic in reply.topics for each in topic.partitions]
        assert answers == [(0, ErrorCode.INVALID_REQUEST), (1, 0)]

    serve_and(story)


async def delete_records(client: Client, *wanted: tuple[str, int, int]) -> list[tuple[int, int]]:
    """(error, low watermark) of each (topic, partition, offset)."""
    topics = [
        DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for topic, index, offset in wanted
    ]
    reply = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    return [(each.error_code, each.low_watermark) for topic in reply.topics for each in topic.partitions]


def test_records_are_deleted_up_to_an_offset_and_no_further_than_the_high_watermark() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        assert await delete_records(client, ("t", 0, 2)) == [(0, 2)]
        assert (await list_offset(client, EARLIEST))[1] == 2
        assert await delete_records(client, ("t", 0, 1)) == [(0, 2)], "what is gone stays gone"
        for offset in (6, -2):
            assert await delete_records(client, ("t", 0, offset)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
        assert await delete_records(client, ("t", 0, -1)) == [(0, 5)]
        assert (await client.produce("t", batch("f"))).log_start_offset == 5

    serve_and(story)


def test_records_that_may_not_be_deleted() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        await client.create("compacted", cleanup_policy="compact")
        await client.create("both", cleanup_policy="compact,delete")
        await client.create("__consumer_offsets")
        assert await delete_records(
            client, ("compacted", 0, -1), ("both", 0, -1), ("__consumer_offsets", 0, -1), ("nope", 0, -1), ("t", 2, -1)
        ) == [
            (ErrorCode.POLICY_VIOLATION, -1),
            (0, 0),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]

    serve_and(story)


def test_where_an_epoch_ends() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        node.broker.replicas.by_name["t"][0].become_leader(1, 3, (1,))
        await client.produce("t", batch("f"))

        async def ask(epoch: int, *, current: int = -1, topic: str = "t", version: int = 4) -> tuple[int, int, int]:
            wish = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
            topics = [OffsetForLeaderTopic(topic=topic, partitions=[wish])]
            reply = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version)
            (answer,) = reply.topics[0].partitions
            return answer.error_code, answer.leader_epoch, answer.end_offset

        for version in (2, 3, 4):
            assert await ask(0, version=version) == (0, 0, 5)
        assert await ask(2) == (0, 0, 5)
        assert await ask(3, current=3) == (0, 3, 6)
        assert await ask(4) == (0, -1, -1)
        assert await ask(-1) == (0, -1, -1)
        assert await ask(0, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await ask(0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await ask(0, topic="nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)

    serve_and(story)


def test_the_producers_that_a_partition_remembers() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        await client.produce("t", batch("f", "g", producer_id=7, producer_epoch=2, base_sequence=0))
        topics = [TopicRequest(name=name, partition_indexes=[0, 2]) for name in ("t", "nope", "a/b")]
        reply = await client.ask(DescribeProducersRequest(topics=topics), 0)
        known, unknown = reply.topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 1)
        assert (producer.last_timestamp, producer.current_txn_start_offset, producer.coordinator_epoch) == (
            1001,
            -1,
            -1,
        )
        assert (known.error_message, unknown.error_code, unknown.error_message) == (None, 3, None)
        for topic, error in zip(reply.topics[1:], (3, 17), strict=True):
            assert {each.error_code for each in topic.partitions} == {error}
            assert all(each.error_message for each in topic.partitions)

    serve_and(story)


def test_the_open_transaction_of_a_producer_and_the_coordinator_that_ended_the_last() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        partition = node.broker.replicas.by_name["t"][0]
        topics = [TopicRequest(name="t", partition_indexes=[0])]

        async def described() -> tuple[int, int, int, int]:
            reply = await client.ask(DescribeProducersRequest(topics=topics), 0)
            (producer,) = reply.topics[0].partitions[0].active_producers
            return (
                producer.producer_epoch,
                producer.last_sequence,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )

        start = partition.log.end_offset
        for sequence in range(2):
            sent = batch("x", producer_id=7, producer_epoch=2, base_sequence=sequence, is_transactional=True)
            assert partition.append_internal(sent, 1).error == 0
        assert await described() == (2, 1, -1, start)
        partition.end_transaction(7, 3, 1, is_commit=True, coordinator_epoch=4, transaction_version=2)
        assert await described() == (3, -1, 4, -1)

    serve_and(story)


@pytest.mark.parametrize("version", [1, 3, 4, 5])
def test_what_lies_in_the_log_directories(version: int) -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        reply = await client.ask(DescribeLogDirsRequest(topics=None), version)
        sizes = {
            (topic.name, each.partition_index): each.partition_size
            for directory in reply.results
            for topic in directory.topics
            for each in topic.partitions
        }
        assert [directory.log_dir for directory in reply.results] == ["/data", "/data2"]
        size = len(batch("a", "b", "c")) + len(batch("d", "e"))
        assert sizes == {("t", 0): size, ("t", 1): 0}
        assert all((each.total_bytes > 0) == (version >= 4) for each in reply.results)
        wanted = [
            DescribableLogDirTopic(topic="t", partitions=[1, 9]),
            DescribableLogDirTopic(topic="x", partitions=[0]),
        ]
        reply = await client.ask(DescribeLogDirsRequest(topics=wanted), version)
        found = [each.partition_index for one in reply.results for topic in one.topics for each in topic.partitions]
        assert found == [1]

    serve_and(story, log_dirs="/data,/data2")


def test_many_named_partitions_are_described_in_slices_each_once() -> None:
    async def story(node: Node) -> None:
        client = await filled(node)
        long_requests = node.broker.services.long_requests
        before = long_requests.handled_count
        wanted = [DescribableLogDirTopic(topic="t", partitions=[1, 0] * 100)]
        reply = await client.ask(DescribeLogDirsRequest(topics=wanted), 4)
        found = [each.partition_index for one in reply.results for topic in one.topics for each in topic.partitions]
        assert found == [1, 0]
        assert long_requests.handled_count == before + 1

    serve_and(story)
