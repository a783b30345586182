"""The leader copies rolled segments, and local retention deletes what is copied."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moldau.broker.tiering.opening import RemoteStorageRefused
from moldau.broker.tiering.remote_partitions import remote_partition
from moldau.protocol.errors import ErrorCode
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, ObjectKind, parse_key
from moldau.storage.tiered.manifest import decode_manifest, encode_cluster_manifest
from moldau.storage.tiered.metadata.remote_segment import SegmentState
from moldau.storage.tiered.segment_copy import manifest_key
from moldau.testing.simulation.schedule import SimulationFailed
from moldau.testing.simulation.storage import SimulatedBucket
from moldau.testing.simulation.world import World
from tests.support.node import PROPERTIES, Node
from tests.support.tiered_node import (
    TIERED,
    URL,
    copied,
    fill,
    followed_of,
    is_copied,
    metadata_records,
    partition_of,
    remote_topic,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)


def test_rolled_segments_are_copied_once_and_in_order() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client)
        await fill(client)
        await until(lambda: is_copied(node), "all rolled segments are copied")
        log = partition_of(node).log
        segments = copied(node)
        assert [each.start_offset for each in segments] == [each.base_offset for each in log.segments[:-1]]
        assert [each.last_offset + 1 for each in segments] == [each.base_offset for each in log.segments[1:]]
        contents = node.world.buckets[URL].contents()
        for segment, file in zip(segments, log.segments, strict=False):
            key = manifest_key(followed_of(node).key, segment)
            manifest = decode_manifest(key, contents[key])
            manifest.check(node.broker.cluster.id, followed_of(node).key, segment, key)
            data = contents[key.replace(ObjectKind.MANIFEST.value, ObjectKind.LOG.value)]
            assert data == file.slice(0, file.size).read()
        assert metadata_records(node) == 2 * len(segments)
        records = metadata_records(node)
        await asyncio.sleep(5)
        assert metadata_records(node) == records

    serve_tiered(story)


def test_local_retention_deletes_what_is_copied_and_the_partition_keeps_its_start() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        log = partition_of(node).log
        assert log.log_start_offset == 0
        assert log.local_start_offset == log.active.base_offset > 0
        assert copied(node)[0].start_offset == 0
        answer = await client.fetch("t", log.active.base_offset)
        assert answer.error_code == 0
        assert answer.log_start_offset == 0

    serve_tiered(story)


def test_both_starts_and_the_copies_survive_a_restart() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        log = partition_of(node).log
        local_start, count = log.local_start_offset, len(copied(node))
        node.stop()
        await until(lambda: not node.host.is_up, "the broker has stopped")
        node.boot()
        client = await node.connect()
        await until(lambda: node.broker.replicas.get("t", 0) is not None, "the replica is loaded")
        await until(lambda: len(copied(node)) == count, "the metadata is read again")
        log = partition_of(node).log
        assert (log.log_start_offset, log.local_start_offset) == (0, local_start)
        await fill(client, first=100)
        await until(lambda: is_copied(node), "what came later is copied")
        ends = [each.last_offset + 1 for each in copied(node)]
        assert [each.start_offset for each in copied(node)] == [0, *ends[:-1]]

    serve_tiered(story)


def test_a_topic_without_tiering_is_not_copied() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, remote_storage_enable="false")
        await fill(client)
        await asyncio.sleep(5)
        assert metadata_records(node) == 0
        assert all(parse_key(key) is None for key in node.world.buckets[URL].contents())

    serve_tiered(story)


def test_nothing_is_copied_where_copying_is_disabled() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, remote_log_copy_disable="true")
        await fill(client)
        await asyncio.sleep(5)
        assert copied(node) == []
        assert len(partition_of(node).log.segments) > 1

    serve_tiered(story)


def test_a_storage_that_fails_is_tried_again_and_unfinished_copies_are_removed() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1)
        node.host.storage_faults.cut_upload = 0.5
        node.host.storage_faults.loses_answer = 0.2
        node.host.storage_faults.timeout_s = 0.1
        await fill(client)
        await until(lambda: tiering_of(node).copier.failures > 2, "copies fail")
        log = partition_of(node).log
        assert log.tiered_end_offset <= log.active.base_offset
        answer = await client.fetch("t", log.active.base_offset)
        assert answer.error_code == 0
        node.host.storage_faults.cut_upload = node.host.storage_faults.loses_answer = 0.0
        await until(lambda: is_copied(node) or log.segments == [log.active], "all is copied in the end")
        await until(lambda: not followed_of(node).remote_log.unfinished_copies(), "no copy is unfinished")
        states = {each.state for each in followed_of(node).remote_log.segments()}
        assert states == {SegmentState.COPY_SEGMENT_FINISHED}
        stored = {found.segment_id for key in node.world.buckets[URL].contents() if (found := parse_key(key))}
        assert stored == {each.segment_id for each in copied(node)}

    serve_tiered(story)


def test_a_copy_that_a_former_leader_finishes_late_is_not_removed_as_unfinished() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client)
        await fill(client)
        await until(lambda: bool(copied(node)), "a segment is copied")
        segment = copied(node)[0]
        as_it_was = replace(segment, state=SegmentState.COPY_SEGMENT_STARTED)
        before = dict(node.world.buckets[URL].contents())
        assert not await tiering_of(node).copier.remove(followed_of(node), as_it_was, is_remain=True)
        assert segment.segment_id in {each.segment_id for each in copied(node)}
        assert before.items() <= dict(node.world.buckets[URL].contents()).items()

    serve_tiered(story)


def test_a_copy_that_ends_after_the_next_leader_deleted_it_leaves_no_object() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client)
        node.host.storage_faults.slow, node.host.storage_faults.slow_s = 1.0, 1.0
        reader = tiering_of(node).reader
        await fill(client)
        await until(lambda: reader.get(remote_partition(partition_of(node))) is not None, "the metadata is followed")
        await until(lambda: bool(followed_of(node).remote_log.unfinished_copies()), "a copy has begun")
        (segment,) = followed_of(node).remote_log.unfinished_copies()
        assert await tiering_of(node).copier.remove(followed_of(node), segment, is_remain=True)
        node.host.storage_faults.slow = 0.0
        await until(lambda: is_copied(node), "all is copied in the end")
        stored = {found.segment_id for key in node.world.buckets[URL].contents() if (found := parse_key(key))}
        assert stored == {each.segment_id for each in copied(node)}
        assert segment.segment_id not in stored

    serve_tiered(story)


def test_a_storage_of_another_cluster_stops_the_start() -> None:
    given = {name.replace("_", "."): str(value) for name, value in TIERED.items()}
    with World(1) as world:
        bucket = world.buckets[URL] = SimulatedBucket()
        bucket.store(CLUSTER_MANIFEST_KEY, encode_cluster_manifest("another"))
        node = Node(world, PROPERTIES | given)
        node.boot()
        with pytest.raises(SimulationFailed) as failed:
            world.run(asyncio.sleep(60), limit_s=100)
        assert isinstance(failed.value.__cause__, RemoteStorageRefused)
        assert "belongs to the cluster another" in str(failed.value.__cause__)


def test_an_unavailable_storage_does_not_stop_the_start() -> None:
    async def story(node: Node) -> None:
        node.host.storage_faults.is_unreachable = True
        client = await node.connect()
        await tiered_topic(client)
        await fill(client)
        assert not tiering_of(node).opened.is_checked
        assert (await client.fetch("t", 0)).error_code is not ErrorCode.UNKNOWN_SERVER_ERROR
        node.host.storage_faults.is_unreachable = False
        await until(lambda: is_copied(node), "copying begins when the storage is back")

    serve_tiered(story)
