"""The log cleaner on a broker: which logs it cleans, when, and what of it the settings and the operator see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.replicas.log_rewriting import IoThrottle
from moldau.protocol.compression import Codec
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets
from moldau.storage.log.log import Log
from tests.support.node import Client, Node, serve_and

SEGMENT = 1 << 20
SOON: dict[str, Any] = {"log_cleaner_backoff_ms": 500, "log_cleaner_dedupe_buffer_size": 24_000}
TOPIC, BROKER = 2, 4


def keyed(*pairs: tuple[str, str | None], size: int = 0) -> bytes:
    values = [(key, None if value is None else value.encode().ljust(size, b".")) for key, value in pairs]
    return build_batch([Record(key=key.encode(), value=value, timestamp=1_767_225_600_000) for key, value in values])


async def write_rounds(client: Client, rounds: int, keys: Iterable[str] = ("a", "b"), topic: str = "t") -> None:
    for number in range(rounds):
        await client.produce(topic, keyed(*((key, f"{key}{number}") for key in keys), size=200_000))


def log_of(node: Node, topic: str = "t") -> Log:
    return node.broker.replicas.by_name[topic][0].log


async def until_cleaned(node: Node, count: int = 1) -> None:
    for _ in range(200):
        if node.broker.cleaner.totals.logs_cleaned >= count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nothing was cleaned")


def test_a_compacted_log_keeps_the_latest_of_each_key() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        log = log_of(node)
        size, end_offset = log.size, log.end_offset
        await until_cleaned(node)
        assert log.size < size / 2 and log.end_offset == end_offset
        first = await client.fetch("t", 0)
        assert first.error_code == 0 and b"b11" in bytes(log.active.file().pread(SEGMENT, 0))
        points = read_offsets(node.host.disk, "/data", CLEANER_OFFSET_CHECKPOINT)
        assert points["t", 0] == log.first_dirty_offset == log.active.base_offset
        await asyncio.sleep(90)
        assert not [name for name in node.host.disk.list_directory("/data/t-0") if name.endswith(".deleted")]

    serve_and(story, **SOON)


def test_a_log_that_is_not_dirty_enough_waits() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        await until_cleaned(node)
        await write_rounds(client, 3, keys=("c", "d"))
        await asyncio.sleep(30)
        assert node.broker.cleaner.totals.logs_cleaned == 1
        assert 0 < node.broker.cleaner.totals.dirty_share_max <= 1

    serve_and(story, log_cleaner_min_cleanable_ratio=0.9, **SOON)


def test_a_topic_that_is_not_compacted_is_left_alone_and_so_is_every_topic_where_the_cleaner_is_off() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="delete", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        size = log_of(node).size
        await asyncio.sleep(30)
        assert log_of(node).size == size

    async def disabled(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        size = log_of(node).size
        await asyncio.sleep(30)
        assert log_of(node).size == size

    serve_and(story, **SOON)
    serve_and(disabled, log_cleaner_enable="false", **SOON)


def test_the_number_of_cleaners_changes_while_the_broker_runs() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        await asyncio.sleep(10)
        assert node.broker.cleaner.totals.logs_cleaned == 0
        change = AlterableConfig(name="log.cleaner.threads", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        await until_cleaned(node)

    serve_and(story, log_cleaner_threads=0, **{**SOON, "log_cleaner_dedupe_buffer_size": 2 << 20})


def test_a_damaged_log_is_left_out_and_others_are_cleaned() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for topic in ("bad", "t"):
            await client.create(topic, cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12, topic="bad")
        bad = log_of(node, "bad")
        await write_rounds(client, 12)
        path = bad.segments[0].path(".log")
        bad.flush(node.host.wall_ms())
        node.host.disk.flip_bit(path, bad.segments[0].size - 10)
        await until_cleaned(node)
        await asyncio.sleep(5)
        assert list(node.broker.cleaner.uncleanable) == [bad]
        assert not [name for name in node.host.disk.list_directory("/data/bad-0") if name.endswith(".cleaned")]

    serve_and(story, **SOON)


def test_a_log_with_a_record_above_the_limit_is_cleaned_when_the_limit_is_raised() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        for number in range(12):
            value = bytes(random.Random(number).randbytes(200_000))
            batch = build_batch([Record(key=b"k", value=value, timestamp=1_767_225_600_000)], codec=Codec.GZIP)
            await client.produce("t", batch)
        await limit_records(client, 100_000)
        log = log_of(node)
        while log not in node.broker.cleaner.uncleanable:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert node.broker.cleaner.totals.logs_cleaned == 0 and log.failure is None
        await limit_records(client, 300_000)
        await until_cleaned(node)
        assert not node.broker.cleaner.uncleanable

    serve_and(story, log_cleaner_threads=1, **SOON)


async def limit_records(client: Client, size_max: int) -> None:
    change = AlterableConfig(name="max.decompressed.message.bytes", config_operation=0, value=str(size_max))
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[change])
    await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)


def test_a_log_that_is_deleted_while_it_is_cleaned_ends_the_cleaning() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        while not node.broker.cleaner.totals.bytes_read:
            await asyncio.sleep(0.01)
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await asyncio.sleep(20)
        assert node.broker.cleaner.totals.logs_cleaned == 0
        await client.create("u", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12, topic="u")
        await until_cleaned(node)

    serve_and(story, **SOON)


def test_bytes_are_spread_over_time() -> None:
    now_ms = 1000
    settings = cast(Any, SimpleNamespace(config=SimpleNamespace(real=lambda name: 1000.0)))
    throttle = IoThrottle(settings, cast(Any, SimpleNamespace(monotonic_ms=lambda: now_ms)))
    assert throttle.delay_s(500) == 0.5
    now_ms = 1500
    assert throttle.delay_s(0) == 0
    assert throttle.delay_s(250) == 0.25
    now_ms = 9000
    assert throttle.delay_s(1000) == 0


def test_without_a_durable_checkpoint_nothing_is_swapped_and_the_cleaner_waits() -> None:
    async def story(node: Node) -> None:
        asked = 0

        async def refused() -> bool:
            nonlocal asked
            asked += 1
            return False

        client = await node.connect()
        node.broker.cleaner.rewriting._checkpoint = refused
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 12)
        size = log_of(node).size
        await asyncio.sleep(10)
        assert log_of(node).size == size and node.broker.cleaner.totals.bytes_read == 0
        assert 10 <= asked <= 25, "once for each backoff"

    serve_and(story, **SOON)


def test_a_damaged_log_is_forgotten_with_its_topic() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact", segment_bytes=SEGMENT)
        await write_rounds(client, 1)
        node.broker.cleaner.uncleanable[log_of(node)] = "damaged"
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await asyncio.sleep(5)
        assert not node.broker.cleaner.uncleanable

    serve_and(story, **SOON)
