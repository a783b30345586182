"""A log directory that fails: what clients are told, what goes on, and what the next start makes of it.

What is expected here was observed of Apache Kafka 4.3.1 with one of three directories full.
"""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from moldau.storage.checkpoints.meta_properties import META_PROPERTIES_FILE
from moldau.storage.directory.previous_run import CLEAN_SHUTDOWN_FILE
from moldau.testing.simulation.disk_calls import Operation
from tests.support.node import Client, Node, batch, fetch_request, produce_request, serve_and

BROKEN = "/data2"
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


async def places(client: Client, topic: str = "t") -> dict[int, str]:
    reply = await client.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        each.partition_index: result.log_dir
        for result in reply.results
        for described in result.topics
        for each in described.partitions
        if described.name == topic
    }


async def described(client: Client, topic: str = "t") -> dict[int, MetadataResponsePartition]:
    reply = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    return {each.partition_index: each for each in reply.topics[0].partitions}


async def with_records(node: Node, count: int = 6, **configs: object) -> tuple[Client, list[int], list[int]]:
    """A topic with a record in each partition: those in the directory that will break, and the others."""
    client = await node.connect()
    await client.create("t", count, **configs)
    for index in range(count):
        assert (await client.produce("t", batch("a"), partition=index)).error_code == 0
    where = await places(client)
    broken = [index for index in range(count) if where[index] == BROKEN]
    return client, broken, [index for index in range(count) if index not in broken]


async def restarted(node: Node, *, is_clean: bool) -> Client:
    if is_clean:
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
    else:
        node.host.crash()
    node.boot()
    return await node.connect()


def test_new_partitions_go_where_the_fewest_are_and_the_controller_knows_where() -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node)
        assert len(broken) == len(others) == 3
        await asyncio.sleep(0.1)
        logs, topic = node.broker.logs, node.broker.image.topics.by_name("t")
        assert topic is not None
        where = await places(client)
        assert {index: each.directories for index, each in topic.partitions.items()} == {
            index: (logs.directory_id(path),) for index, path in where.items()
        }

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_an_error_of_one_directory_takes_its_partitions_and_no_others() -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node)
        disk = node.host.disk
        disk.break_directory(BROKEN)
        refused = await client.produce("t", batch("b"), partition=broken[0])
        assert (refused.error_code, refused.base_offset) == (STORAGE, -1)
        calls = dict(disk.counts)
        await asyncio.sleep(0.1)
        for index in broken:
            assert (await client.produce("t", batch("b"), partition=index)).error_code == STORAGE
            data = await client.fetch("t", partition=index)
            assert (data.error_code, data.high_watermark, data.last_stable_offset) == (STORAGE, -1, -1)
            for timestamp in (-1, -2, 5):
                wish = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                asked = ListOffsetsRequest(
                    replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=[wish])]
                )
                (answer,) = (await client.ask(asked, 5)).topics[0].partitions
                assert (answer.error_code, answer.offset) == (STORAGE, -1)
            records = DeleteRecordsPartition(partition_index=index, offset=0)
            deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[records])], timeout_ms=1)
            (result,) = (await client.ask(deletion, 2)).topics[0].partitions
            assert (result.error_code, result.low_watermark) == (STORAGE, -1)
        assert disk.counts[Operation.READ] == calls[Operation.READ], "nothing is tried there any more"
        for index in others:
            assert (await client.produce("t", batch("b"), partition=index)).base_offset == 1
            assert (await client.fetch("t", partition=index)).high_watermark == 2

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_clients_are_told_that_the_partitions_have_no_leader() -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node)
        node.host.disk.break_directory(BROKEN)
        await client.produce("t", batch("b"), partition=broken[0])
        await asyncio.sleep(0.1)
        found = await described(client)
        for index in broken:
            each = found[index]
            assert (each.error_code, each.leader_id, each.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 1)
            assert (each.replica_nodes, each.offline_replicas) == ([1], [1])
        for index in others:
            assert (found[index].error_code, found[index].leader_id, found[index].offline_replicas) == (0, 1, [])
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=9, cursor=None)
        reply = await client.ask(asked, 0)
        assert [each.partition_index for each in reply.topics[0].partitions if each.offline_replicas] == broken
        reply = await client.ask(DescribeLogDirsRequest(topics=None), 4)
        results = {each.log_dir: each for each in reply.results}
        assert results["/data"].error_code == 0 and len(results["/data"].topics[0].partitions) == 3
        lost = results[BROKEN]
        assert (lost.error_code, lost.topics, lost.total_bytes, lost.usable_bytes) == (STORAGE, [], -1, -1)
        await client.create("new", 4)
        assert set((await places(client, "new")).values()) == {"/data"}
        assert [(await client.produce("new", batch("a"), partition=i)).error_code for i in range(4)] == [0] * 4

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_a_fetch_that_waits_is_answered_when_its_directory_fails() -> None:
    async def story(node: Node) -> None:
        client, broken, _ = await with_records(node)
        waiting = await node.connect()
        waiting.send(fetch_request([("t", broken[1], 1)], max_wait_ms=30_000), 12)
        await asyncio.sleep(0.1)
        node.host.disk.break_directory(BROKEN)
        await client.produce("t", batch("b"), partition=broken[0])
        (data,) = (await asyncio.wait_for(waiting.reply(), 1)).responses[0].partitions
        assert data.error_code == STORAGE

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_a_failed_sync_refuses_whom_it_was_for_and_is_not_tried_again() -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node, flush_messages=1)
        disk = node.host.disk
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        refused = await client.produce("t", batch("b"), partition=broken[0])
        assert (refused.error_code, refused.base_offset) == (STORAGE, -1)
        await asyncio.sleep(0.5)
        syncs = node.broker.flusher.sync_count
        assert (await client.produce("t", batch("b"), partition=broken[1])).error_code == STORAGE
        await asyncio.sleep(0.5)
        assert node.broker.flusher.sync_count == syncs
        assert (await client.produce("t", batch("b"), partition=others[0])).base_offset == 1

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_a_sync_that_fails_while_the_node_stops_leaves_no_mark_of_a_clean_end() -> None:
    """The kernel has dropped what it could not write, and the syncs at the end succeed."""

    async def story(node: Node) -> None:
        _, broken, _ = await with_records(node)
        disk = node.host.disk
        log = next(each.log for each in node.broker.replicas if (each.topic, each.index) == ("t", broken[0]))
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        disk.faults.write_stall_ns = 3_000_000_000
        node.broker.flusher.write_back(log)
        await asyncio.sleep(0.1)
        disk.faults.write_stall_ns = 0
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        assert [disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") for path in ("/data", BROKEN)] == [True, False]

    for seed in range(8):  # the sync happens as its thread begins, or as it ends
        serve_and(story, seed=seed, log_dirs=f"/data,{BROKEN}")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_brings_a_mended_directory_back_with_what_was_acknowledged(is_clean: bool) -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node, flush_messages=1)
        node.host.disk.break_directory(BROKEN)
        await client.produce("t", batch("b"), partition=broken[0])
        node.host.disk.mend_directories()
        client = await restarted(node, is_clean=is_clean)
        await asyncio.sleep(0.1)
        assert all(each.leader_id == 1 and not each.offline_replicas for each in (await described(client)).values())
        for index in (*broken, *others):
            assert (await client.fetch("t", partition=index)).high_watermark == 1
            assert (await client.produce("t", batch("c"), partition=index)).base_offset == 1

    serve_and(story, log_dirs=f"/data,{BROKEN}")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_node_starts_without_a_directory_that_cannot_be_read_and_makes_nothing_anew(is_clean: bool) -> None:
    async def story(node: Node) -> None:
        _, broken, others = await with_records(node, flush_messages=1)
        await asyncio.sleep(0.1)
        node.host.disk.break_directory(BROKEN)
        client = await restarted(node, is_clean=is_clean)
        found = await described(client)
        assert [index for index, each in found.items() if each.leader_id == -1] == broken
        assert (await client.produce("t", batch("b"), partition=broken[0])).error_code == STORAGE
        assert (await client.fetch("t", partition=broken[0])).error_code == STORAGE
        for index in others:
            assert (await client.produce("t", batch("b"), partition=index)).base_offset == 1
        node.host.disk.mend_directories()
        client = await restarted(node, is_clean=True)
        for index in broken:
            assert (await client.produce("t", batch("b"), partition=index)).base_offset == 1

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_a_node_starts_without_a_directory_whose_meta_properties_are_damaged() -> None:
    async def story(node: Node) -> None:
        _, broken, others = await with_records(node, flush_messages=1)
        await asyncio.sleep(0.1)
        node.host.disk.open(f"{BROKEN}/{META_PROPERTIES_FILE}").truncate(20)
        client = await restarted(node, is_clean=True)
        assert (await client.produce("t", batch("b"), partition=broken[0])).error_code == STORAGE
        assert (await client.produce("t", batch("b"), partition=others[0])).base_offset == 1

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_one_damaged_partition_is_offline_alone_and_its_files_stay_as_they_are() -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node, flush_messages=1)
        await client.produce("t", batch("b"), partition=broken[0])
        await asyncio.sleep(0.1)
        await node.broker.log_jobs.checkpoint()
        node.host.kill()
        path = f"{BROKEN}/t-{broken[0]}/00000000000000000000.log"
        sound = bytes(node.host.disk.peek(path))
        node.host.disk.flip_bit(path, 80)
        before = bytes(node.host.disk.peek(path))
        for is_clean in (None, True, False):
            if is_clean is None:
                node.boot()
                client = await node.connect()
            else:
                client = await restarted(node, is_clean=is_clean)
            await asyncio.sleep(0.5)
            assert (await client.produce("t", batch("c"), partition=broken[0])).error_code == STORAGE
            found = await described(client)
            assert [index for index, each in found.items() if each.leader_id == -1] == [broken[0]]
            assert found[broken[0]].offline_replicas == [1]
            assert bytes(node.host.disk.peek(path)) == before
            assert not node.broker.logs.offline
        for index in (*broken[1:], *others):
            assert (await client.produce("t", batch("b"), partition=index)).base_offset == 1
        node.host.kill()
        mended = node.host.disk.open(path)
        mended.pwrite(sound, 0)
        mended.sync()
        node.boot()
        client = await node.connect()
        await asyncio.sleep(0.5)
        assert (await client.fetch("t", partition=broken[0])).high_watermark == 2
        assert (await client.produce("t", batch("c"), partition=broken[0])).base_offset == 2

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_a_topic_that_was_deleted_while_its_directory_was_away_does_not_come_back() -> None:
    async def story(node: Node) -> None:
        client, broken, _ = await with_records(node)
        node.host.disk.break_directory(BROKEN)
        await client.produce("t", batch("b"), partition=broken[0])
        await asyncio.sleep(0.1)
        reply = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        assert reply.responses[0].error_code == 0
        await client.create("t", 6)
        node.host.disk.mend_directories()
        client = await restarted(node, is_clean=True)
        for index in range(6):
            assert (await client.produce("t", batch("new"), partition=index)).base_offset == 0

    serve_and(story, log_dirs=f"/data,{BROKEN}")


def test_groups_whose_offsets_were_there_are_nobodys() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["one", "two", "three", "four"])
        await client.ask(asked, 4)
        await asyncio.sleep(0.5)
        reply = await client.ask(asked, 4)
        assert [each.error_code for each in reply.coordinators] == [0] * 4
        broken = [index for index, path in (await places(client, "__consumer_offsets")).items() if path == BROKEN]
        assert len(broken) == 1
        await client.create("t", 4)
        node.host.disk.break_directory(BROKEN)
        for index, path in (await places(client)).items():
            if path == BROKEN:
                await client.produce("t", batch("a"), partition=index)
        await asyncio.sleep(0.1)
        reply = await client.ask(asked, 4)
        of = {each.key: each.error_code for each in reply.coordinators}
        for group, error in of.items():
            is_broken = node.broker.coordinators.groups.partition_of(group) in broken
            assert error == (ErrorCode.COORDINATOR_NOT_AVAILABLE if is_broken else 0)

    serve_and(story, log_dirs=f"/data,{BROKEN}")


@pytest.mark.parametrize("path", ["/data", BROKEN])
def test_without_the_metadata_directory_the_node_stops(path: str) -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node)
        node.host.disk.break_directory(path)
        client.send(produce_request("t", batch("b"), partition=(broken if path == BROKEN else others)[0]), 9)
        await asyncio.sleep(1)
        assert node.host.is_up is (path == BROKEN)
        assert (node.host.halted is None) is (path == BROKEN)

    serve_and(story, may_halt=True, log_dirs=f"/data,{BROKEN}")


def test_with_its_last_log_directory_the_node_stops() -> None:
    async def story(node: Node) -> None:
        client, broken, others = await with_records(node)
        for path, index in (("/data", others[0]), (BROKEN, broken[0])):
            assert node.host.halted is None
            node.host.disk.break_directory(path)
            client.send(produce_request("t", batch("b"), partition=index), 9)
            await asyncio.sleep(0.1)
        assert "the last log directory" in (node.host.halted or "")

    serve_and(story, may_halt=True, log_dirs=f"/data,{BROKEN}", metadata_log_dir="/metadata")
