"""Compacted topics tier: remote segments are cleaned, and consumers of both tiers see the latest value of each key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.tiered.layout import ObjectKind, parse_key
from moldau.storage.tiered.metadata.lineage import Lineage, read_lineage
from moldau.storage.tiered.segment_verification import verify_segment
from tests.support.node import Client, Node
from tests.support.tiered_node import (
    URL,
    copied,
    followed_of,
    partition_of,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)

pytestmark = pytest.mark.slow

TIME = 1_767_225_600_000
CLEANER: dict[str, Any] = {
    "log_cleaner_backoff_ms": 300,
    "log_cleaner_dedupe_buffer_size": 24_000,
    "moldau_tiered_superseded_retention_ms": 3_000,
}
COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0.01,
    "local_retention_bytes": 1,
    "delete_retention_ms": 2_000,
}


async def write(client: Client, pairs: list[tuple[str, str | None]], topic: str = "t") -> None:
    for key, value in pairs:
        data = build_batch([Record(key.encode(), None if value is None else value.encode(), TIME)])
        assert (await client.produce(topic, data)).error_code == 0


def records_in(answer: PartitionData) -> bytes:
    records = answer.records
    assert records is None or isinstance(records, bytes | memoryview)
    return bytes(records or b"")


async def read_all(client: Client, node: Node, topic: str = "t") -> list[Record]:
    """What a consumer from the beginning gets."""
    found: list[Record] = []
    log = partition_of(node, topic).log
    offset = log.log_start_offset
    while offset < partition_of(node, topic).high_watermark:
        answer = await client.fetch(topic, offset, max_wait_ms=500)
        if answer.error_code:
            await asyncio.sleep(0.2)
            continue
        data = records_in(answer)
        for place, header in iterate_batches(data):
            found += [each for each in records_of(data, place, header) if each.offset >= offset]
            offset = max(offset, header.next_offset)
    return found


async def table(client: Client, node: Node) -> dict[bytes, bytes]:
    latest: dict[bytes, bytes] = {}
    for record in await read_all(client, node):
        assert record.key is not None
        latest.pop(record.key, None)
        if record.value is not None:
            latest[record.key] = bytes(record.value)
    return latest


def lineages(node: Node) -> list[Lineage]:
    found = [read_lineage(each.custom_metadata) for each in copied(node)]
    assert None not in found
    return [each for each in found if each is not None]


async def rewrite(client: Client, rounds: int, first: int = 0) -> dict[bytes, bytes]:
    for number in range(first, first + rounds):
        await write(client, [(f"k{key}", f"value {number} of {key}") for key in range(4)])
    return {f"k{key}".encode(): f"value {first + rounds - 1} of {key}".encode() for key in range(4)}


def test_only_cleaned_segments_are_copied_and_they_say_how_far() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, **COMPACTED)
        await rewrite(client, 10)
        await until(lambda: copied(node), "segments are copied")
        log = partition_of(node).log
        assert all(each.last_offset < (log.first_dirty_offset or 0) for each in copied(node))
        assert all(each.cleaned_end_offset > 0 for each in lineages(node))

    serve_tiered(story, **CLEANER)


def test_remote_segments_are_cleaned_against_later_ones_and_the_old_ones_go() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, **COMPACTED)
        expected: dict[bytes, bytes] = {}
        for first in range(0, 60, 10):
            expected = await rewrite(client, 10, first)
            await asyncio.sleep(5)
        await until(lambda: tiering_of(node).cleaner.segments_replaced > 3, "remote segments are replaced")
        await until(lambda: not followed_of(node).remote_log.superseded_copies(), "the superseded ones are deleted")
        assert await table(client, node) == expected
        records = await read_all(client, node)
        assert len(records) < 60, "most old values are gone"
        assert max(each.generation for each in lineages(node)) >= 1
        known = {each.segment_id for each in followed_of(node).remote_log.segments()}
        keys = [parse_key(key) for key in node.world.buckets[URL].contents()]
        assert {each.segment_id for each in keys if each is not None} <= known
        opened = tiering_of(node).opened
        for segment in copied(node):
            report = await verify_segment(opened.storage, opened.cluster_id, followed_of(node).key, segment)
            assert report.problems == []

    serve_tiered(story, **CLEANER)


def test_a_tombstone_outlives_the_older_values_in_remote_storage_and_then_goes() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, **COMPACTED)
        await write(client, [("gone", "x" * 50)])
        await rewrite(client, 10)
        await until(lambda: copied(node), "segments are copied")
        await write(client, [("gone", None)])
        for first in range(10, 80, 10):
            await rewrite(client, 10, first)
            await asyncio.sleep(5)
            assert b"gone" not in await table(client, node)
        await until(lambda: tiering_of(node).cleaner.segments_replaced > 3, "remote segments are replaced")
        for first in range(80, 140, 10):
            await rewrite(client, 10, first)
            await asyncio.sleep(5)
        assert not [each for each in await read_all(client, node) if each.key == b"gone"], "the tombstone goes at last"

    serve_tiered(story, **CLEANER)


def test_a_broker_that_is_killed_at_any_time_leaves_nothing_behind() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, **COMPACTED)
        expected: dict[bytes, bytes] = {}
        for number in range(8):
            expected = await rewrite(client, 10, 10 * number)
            await asyncio.sleep(1 + 0.37 * number)
            node.host.kill()
            node.boot()
            client = await node.connect()
            await until(lambda: node.broker.replicas.get("t", 0) is not None, "the replica is loaded")
            await until(lambda: tiering_of(node).reader.partition_count, "the metadata topic is known")
            await asyncio.sleep(3)
            assert await table(client, node) == expected
        await rewrite(client, 10, 80)  # all that came before may be clean: the last process has something to do
        await until(lambda: tiering_of(node).cleaner.passes > 0, "remote segments are cleaned")
        followed = followed_of(node)
        await until(lambda: not followed.remote_log.unfinished_copies(), "remains are removed")
        await until(lambda: not followed.remote_log.superseded_copies(), "superseded segments are removed")
        known = {each.segment_id for each in followed.remote_log.segments()}
        keys = [parse_key(key) for key in node.world.buckets[URL].contents()]
        assert {each.segment_id for each in keys if each is not None} <= known

    serve_tiered(story, **CLEANER)


def test_an_empty_result_takes_a_reader_to_the_next_segment() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, **COMPACTED)
        for first in range(0, 60, 10):
            await rewrite(client, 10, first)
            await asyncio.sleep(5)
        await until(lambda: [each for each in copied(node) if not each.size], "a cleaned segment is empty")
        empty = next(each for each in copied(node) if not each.size)
        answer = await client.fetch("t", empty.start_offset, max_wait_ms=500)
        data = records_in(answer)
        headers = [header for _, header in iterate_batches(data)]
        assert headers and headers[-1].next_offset > empty.start_offset

    serve_tiered(story, **CLEANER)


def test_a_damaged_object_is_not_cleaned() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, **COMPACTED)
        await rewrite(client, 10)
        await until(lambda: copied(node), "segments are copied")
        bucket = node.world.buckets[URL]
        for key, data in bucket.contents().items():
            found = parse_key(key)
            if data and found is not None and found.kind is ObjectKind.LOG:
                bucket.damage(key, 70)
        await rewrite(client, 20, 10)
        await until(lambda: tiering_of(node).cleaner.failures, "the pass ends with an error")
        assert all(each.generation == 0 for each in lineages(node))

    serve_tiered(story, **CLEANER)
