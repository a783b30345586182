"""Topics that are deleted under the hands of producers, readers, flushes and jobs leave the broker serving."""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.support.node import Client, Closed, Node, batch, fetch_request, produce_request, serve_and

ROUNDS = 5
CHECKPOINTED_S = 2.0


async def write(client: Client, topic: bytes) -> None:
    """Pipelined, until the topic is gone."""
    while True:
        for _ in range(3):
            client.send(produce_request(topic, batch("x")), 13)
        errors = [(await client.reply()).responses[0].partition_responses[0].error_code for _ in range(3)]
        if ErrorCode.UNKNOWN_TOPIC_ID in errors:
            return
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in errors:
            continue  # appended, and deleted before it was durable
        assert errors == [0, 0, 0]


async def read(client: Client, topic: bytes) -> None:
    while True:
        reply = await client.ask(fetch_request([(topic, 0, 0)], max_wait_ms=20), 13)
        error = reply.responses[0].partitions[0].error_code
        if error == ErrorCode.UNKNOWN_TOPIC_ID:
            return
        assert error in (0, ErrorCode.OFFSET_OUT_OF_RANGE), "retention takes what was read before"


@pytest.mark.parametrize("seed", range(20))
def test_deleting_what_is_being_written_flushed_and_read(seed: int) -> None:
    async def story(node: Node) -> None:
        admin, writer, reader = [await node.connect() for _ in range(3)]
        node.host.disk.faults.cold_read = 0.5
        node.host.disk.faults.sync_ns_max = 20_000_000
        for round_ in range(ROUNDS):
            topic = await admin.create("t", flush_messages=1, segment_bytes=1 << 20, retention_ms=1)
            work = asyncio.gather(write(writer, topic), read(reader, topic))
            await asyncio.sleep(0.01 + 0.013 * round_)
            reply = await admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
            assert reply.responses[0].error_code == 0
            await asyncio.wait_for(work, 10)
        assert node.host.is_up

    serve_and(story, seed=seed, log_initial_task_delay_ms=5, log_retention_check_interval_ms=7)


def test_a_stop_in_the_middle_of_everything_is_clean_and_loses_nothing_acknowledged() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1)
        taken = 0
        for stop_after in (1, 3, 10):
            try:
                for i in range(20):
                    if i == stop_after:
                        node.stop()
                    for _ in range(3):
                        client.send(produce_request("t", batch("x")), 9)
                    for _ in range(3):
                        error = (await client.reply()).responses[0].partition_responses[0].error_code
                        assert error == 0 or (error == ErrorCode.NOT_LEADER_OR_FOLLOWER and i >= stop_after)
                        taken += error == 0
            except Closed:
                pass
            while node.host.is_up:
                await asyncio.sleep(0.1)
            node.boot()
            client = await node.connect()
            assert all(each.was_shut_down_cleanly for each in node.broker.logs.directories)
            assert node.broker.replicas.by_name["t"][0].log.end_offset >= taken

    serve_and(story)


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_topic_that_is_made_again_is_another_one_after_a_crash(loses_power: bool) -> None:
    """Though the checkpoints on the disk still speak of the one before: where it began, how far it was committed."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1)
        for _ in range(10):
            await client.produce("t", batch("former"))
        wish = DeleteRecordsPartition(partition_index=0, offset=5)
        topics = [DeleteRecordsTopic(name="t", partitions=[wish])]
        await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
        await asyncio.sleep(CHECKPOINTED_S)
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await client.create("t", flush_messages=1)
        for _ in range(3):
            await client.produce("t", batch("latter"))
        if loses_power:
            node.host.crash()
        else:
            node.host.kill()
        node.boot()
        await node.connect()
        log = node.broker.replicas.by_name["t"][0].log
        assert (log.log_start_offset, log.end_offset) == (0, 3)
        assert not node.broker.damaged

    serve_and(story, replica_high_watermark_checkpoint_interval_ms=1000)
