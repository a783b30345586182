"""Consumers read below the local log start from remote storage."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.layout import ObjectKind, parse_key
from tests.support.node import Client, Node, fetch_request
from tests.support.tiered_node import (
    URL,
    fill,
    followed_of,
    partition_of,
    remote_topic,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)

READ_COMMITTED = 1


def records_in(answer: PartitionData) -> bytes:
    assert answer.records is None or isinstance(answer.records, bytes | memoryview)
    return bytes(answer.records or b"")


async def read_all(client: Client, start: int = 0, end: int = 40, **fields: Any) -> list[tuple[int, bytes]]:
    """Offsets and values, read as a consumer does."""
    found: list[tuple[int, bytes]] = []
    offset = start
    for _ in range(400):
        answer = await client.fetch("t", offset, max_wait_ms=100, **fields)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        records = records_in(answer)
        for position, header in iterate_batches(records):
            for record in records_of(records, position, header):
                if record.offset >= offset:
                    found.append((record.offset, bytes(record.value or b"")))
        offset = found[-1][0] + 1 if found else offset
        if offset >= end:
            return found
    raise AssertionError(f"stuck at offset {offset}")


def expected(start: int = 0) -> list[tuple[int, bytes]]:
    values = [value for number in range(20) for value in (f"a{number:06}".encode(), f"b{number:06}".encode())]
    return list(enumerate(values))[start:]


@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
@pytest.mark.parametrize("partition_max_bytes", [1, 150, 1 << 20])
def test_a_consumer_reads_through_both_tiers(isolation_level: int, partition_max_bytes: int) -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        fields: dict[str, Any] = {"isolation_level": isolation_level, "partition_max_bytes": partition_max_bytes}
        assert await read_all(client, **fields) == expected()
        assert await read_all(client, 7, **fields) == expected(7)
        assert tiering_of(node).source.reads > 0

    serve_tiered(story)


@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
def test_no_record_is_read_past_the_high_watermark_of_a_new_leader(isolation_level: int) -> None:
    """The former leader copied up to its own, higher one."""

    async def story(node: Node) -> None:
        client = await remote_topic(node)
        partition = partition_of(node)
        partition.high_watermark = 5
        fields: dict[str, Any] = {"isolation_level": isolation_level}
        assert [offset for offset, _ in await read_all(client, 0, 4, **fields)][-1] < 5
        answer = await client.fetch("t", 6, max_wait_ms=10, **fields)
        assert (answer.error_code, records_in(answer), answer.high_watermark) == (0, b"", 5)
        partition.high_watermark = 40
        assert await read_all(client, **fields) == expected()

    serve_tiered(story)


def test_a_slow_storage_gives_an_empty_answer_and_then_the_records() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        node.host.storage_faults.slow, node.host.storage_faults.slow_s = 1.0, 1.0
        began = node.world.now_s
        answer = await client.fetch("t", 0, max_wait_ms=10)
        assert (answer.error_code, records_in(answer)) == (0, b"")
        assert 0.4 <= node.world.now_s - began < 0.8
        assert (await read_all(client, 0, 2))[:2] == expected()[:2]

    serve_tiered(story)


def test_hot_reads_do_not_wait_for_a_storage_that_is_away() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        node.host.storage_faults.is_away = True
        answer = await client.fetch("t", 0, max_wait_ms=10)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        active = partition_of(node).log.active.base_offset
        assert await read_all(client, active) == expected(active)
        await fill(client, count=1, first=50)
        node.host.storage_faults.is_away = False
        assert (await read_all(client))[:40] == expected()

    serve_tiered(story)


def test_one_fetch_of_both_tiers_answers_both() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        await tiered_topic(client, "hot", remote_storage_enable="false")
        await fill(client, "hot", 1)
        reply = await client.ask(fetch_request([("t", 0, 0), ("hot", 0, 0)], max_wait_ms=100), 12)
        answers = [each.partitions[0] for each in reply.responses]
        assert [each.error_code for each in answers] == [0, 0]
        assert all(each.records for each in answers)

    serve_tiered(story)


def test_a_damaged_object_is_an_error_and_nothing_of_it_is_served() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        bucket = node.world.buckets[URL]
        for key in bucket.contents():
            found = parse_key(key)
            if found is not None and found.kind is ObjectKind.LOG and found.start_offset == 0:
                bucket.damage(key, 70)
        answer = await client.fetch("t", 0, max_wait_ms=100)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "clients report it"
        assert not answer.records
        later = followed_of(node).remote_log.read_segments()[1].start_offset
        assert await read_all(client, later) == expected(later)

    serve_tiered(story)


def test_a_followers_fetch_is_told_that_the_offset_moved() -> None:
    async def story(node: Node) -> None:
        await remote_topic(node)
        moved = partition_of(node).log.read(0, 100, end_offset=40, at_least_one=True)
        assert moved is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE

    serve_tiered(story)


def test_many_readers_share_the_reads() -> None:
    async def story(node: Node) -> None:
        await remote_topic(node)
        node.host.storage_faults.delay_s = 0.05
        clients = [await node.connect() for _ in range(8)]
        answers = await asyncio.gather(*(each.fetch("t", 0, max_wait_ms=500) for each in clients))
        assert {each.error_code for each in answers} == {0}
        assert tiering_of(node).source.reads == 1

    serve_tiered(story, remote_log_reader_threads=2)


def test_a_sequential_reader_finds_its_next_records_read_already() -> None:
    def duration_s(**properties: Any) -> float:
        took: list[float] = []

        async def story(node: Node) -> None:
            client = await remote_topic(node)
            node.host.storage_faults.slow, node.host.storage_faults.slow_s = 1.0, 0.2
            began = node.world.now_s
            assert await read_all(client, partition_max_bytes=150) == expected()
            took.append(node.world.now_s - began)

        serve_tiered(story, **properties)
        return took[0]

    # Segments of a few records: the manifest and the indexes of each are read when the reader gets there.
    assert duration_s() < 0.7 * duration_s(moldau_tiered_read_ahead_bytes=0)


def test_a_reader_that_jumps_reads_what_it_asked_for() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        source = tiering_of(node).source
        for count, offset in enumerate((0, 20, 10, 30, 5), 1):
            answer = await client.fetch("t", offset, max_wait_ms=500, partition_max_bytes=100)
            assert answer.records
            assert source.reads == count
        assert source.bytes_read < 5 * 250

    serve_tiered(story)


def test_a_replica_of_a_compacted_log_reads_epochs_that_it_does_not_know() -> None:
    """It fetched the log when the first records of epoch 2, and all of epoch 1, were superseded."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1)
        log = partition_of(node).log
        node.host.storage_faults.may_write = False
        await fill(client)
        log.epochs.replace([EpochStart(0, 0), EpochStart(1, 10), EpochStart(2, 20)])
        node.host.storage_faults.may_write = True
        await until(lambda: log.segments == [log.active], "the copied segments are deleted here")
        log.epochs.replace([EpochStart(0, 0), EpochStart(2, 27)])
        assert (await client.fetch("t", 12, max_wait_ms=10)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        log.config = replace(log.config, cleanup_policy=("compact",))
        for fields in ({}, {"isolation_level": READ_COMMITTED}):
            assert await read_all(client, **fields) == expected()

    serve_tiered(story)
