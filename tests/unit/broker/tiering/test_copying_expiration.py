"""Retention of both tiers: remote segments go, and the log start offset moves; local retention never moves it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from moldau.broker.tiering.copying import expired_segments
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.storage.tiered.layout import parse_key
from tests.support.node import Node
from tests.support.tiered_node import (
    URL,
    copied,
    fill,
    followed_of,
    partition_of,
    remote_topic,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)


def stored(node: Node) -> set[bytes]:
    """The ids of the segments with objects in the bucket."""
    return {found.segment_id for key in node.world.buckets[URL].contents() if (found := parse_key(key)) is not None}


def test_retention_by_size_counts_both_tiers() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, retention_bytes=900, local_retention_bytes=1)
        await fill(client, count=40)
        log = partition_of(node).log

        def holds() -> bool:
            remote = sum(each.size for each in copied(node))
            is_settled = log.tiered_end_offset == log.active.base_offset and log.segments == [log.active]
            return is_settled and remote > 0 and 900 <= remote + log.size < 900 + 2 * 300

        await until(holds, "what is too much is deleted, and no more")
        first = copied(node)[0].start_offset
        assert log.log_start_offset == first > 0
        await until(lambda: stored(node) == {each.segment_id for each in copied(node)}, "the objects are gone")
        assert (await client.fetch("t", first - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.fetch("t", first, max_wait_ms=100)).error_code == 0

    serve_tiered(story)


def test_retention_by_size_does_not_count_what_is_not_replicated() -> None:
    """A leader that is cut off would delete for records that the next leader does not have."""

    async def story(node: Node) -> None:
        await remote_topic(node)
        log = partition_of(node).log
        remote_log = followed_of(node).remote_log
        log.config = replace(log.config, retention_bytes=remote_log.size())
        assert log.active.size >= copied(node)[0].size
        assert expired_segments(log, remote_log, log.end_offset, 0, 0).segments == [copied(node)[0]]
        assert not expired_segments(log, remote_log, log.active.base_offset, 0, 0).segments

    serve_tiered(story)


def test_retention_by_time_deletes_a_remote_segment_once_it_is_older() -> None:
    """At `retention.ms` itself the copy stays, like a local segment, and as in Apache Kafka 4.3.1."""

    async def story(node: Node) -> None:
        await remote_topic(node)
        log, remote_log = partition_of(node).log, followed_of(node).remote_log
        log.config = replace(log.config, retention_bytes=-1, retention_ms=1000)
        first = copied(node)[0]
        due_ms = first.max_timestamp_ms + 1000
        assert not expired_segments(log, remote_log, log.end_offset, due_ms, 0).segments
        assert first in expired_segments(log, remote_log, log.end_offset, due_ms + 1, 0).segments

    serve_tiered(story)


def test_retention_by_time_counts_the_remote_segments() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, retention_ms=1000, local_retention_ms=1000)  # the records are of 1970
        await fill(client)
        log = partition_of(node).log
        await until(lambda: log.log_start_offset == log.end_offset, "all is gone, the active segment too")
        await until(lambda: not stored(node), "the objects are gone")
        assert len(followed_of(node).remote_log) == 0

    serve_tiered(story)


def test_delete_records_deletes_remote_segments_that_lie_wholly_before() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        log = partition_of(node).log
        second = copied(node)[1]
        wish = DeleteRecordsPartition(partition_index=0, offset=second.start_offset + 1)
        topic = DeleteRecordsTopic(name="t", partitions=[wish])
        reply = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        assert reply.topics[0].partitions[0].error_code == 0
        await until(lambda: copied(node)[0] == second, "the first segment is deleted")
        assert log.log_start_offset == second.start_offset + 1
        assert (await client.fetch("t", second.start_offset + 1, max_wait_ms=100)).error_code == 0

    serve_tiered(story)


def test_a_truncation_of_all_local_records_deletes_no_remote_segment() -> None:
    """The log start offset stays, before which a leader deletes remote segments."""

    async def story(node: Node) -> None:
        client = await remote_topic(node)
        partition, before = partition_of(node), copied(node)
        log = partition.log
        log.truncate_to(log.active.base_offset, node.host.wall_ms())
        partition.adapt_to_truncation()
        assert log.size == 0 and log.log_start_offset == 0
        await asyncio.sleep(30)
        assert copied(node) == before and stored(node) == {each.segment_id for each in before}
        assert (await client.fetch("t", 0, max_wait_ms=500)).records

    serve_tiered(story)


def test_a_segment_in_which_the_log_begins_is_copied_and_read() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1)
        node.host.storage_faults.may_write = False
        await fill(client)
        log = partition_of(node).log
        start_offset = log.segments[1].base_offset + 1
        wish = DeleteRecordsPartition(partition_index=0, offset=start_offset)
        topic = DeleteRecordsTopic(name="t", partitions=[wish])
        reply = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        assert reply.topics[0].partitions[0].error_code == 0
        node.host.storage_faults.may_write = True
        await until(lambda: log.segments == [log.active], "the copied segments are deleted here")
        assert copied(node)[0].start_offset == start_offset - 1
        assert copied(node)[0].epochs[0].start_offset == start_offset
        assert (await client.fetch("t", start_offset, max_wait_ms=100)).error_code == 0
        assert (await client.fetch("t", start_offset - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    serve_tiered(story)


def test_a_deleted_topic_takes_its_objects_along() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        reply = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert reply.responses[0].error_code == 0
        await until(lambda: not stored(node), "the objects are gone")
        await until(lambda: not list(tiering_of(node).reader), "its metadata is followed no more")

    serve_tiered(story)


def test_a_broker_that_starts_again_goes_on_with_the_removal_of_a_topic() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        node.host.storage_faults.may_write = False
        reply = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert reply.responses[0].error_code == 0
        await until(lambda: tiering_of(node).reader.marked, "the removal is marked")
        node.stop()
        await until(lambda: not node.host.is_up, "the broker has stopped")
        assert stored(node)
        node.host.storage_faults.may_write = True
        node.boot()
        await node.connect()
        await until(lambda: not stored(node), "the objects are gone")
        await until(lambda: not tiering_of(node).reader.marked, "the removal is finished")

    serve_tiered(story)


def test_tiering_that_is_disabled_deletes_the_remote_segments() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        log = partition_of(node).log
        changes = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()]
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
        reply = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert reply.responses[0].error_code == 0, reply.responses[0].error_message
        await until(lambda: not stored(node), "the objects are gone")
        await until(lambda: log.log_start_offset == log.active.base_offset, "the log begins where its files do")
        assert (await client.fetch("t", log.log_start_offset)).error_code == 0

    serve_tiered(story)
