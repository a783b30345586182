"""Batches that are examined beside the loop: taken in order, refused by name, nobody else waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.record_validation import LOOP_EXPANDED_SIZE_MAX, LOOP_RECOMPRESSED_SIZE_MAX, LOOP_RECORDS_MAX
from tests.support.node import Client, Closed, Node, batch, fetch_request, produce_request, serve_and

HUGE = build_batch([Record(b"k", bytes(LOOP_EXPANDED_SIZE_MAX + 1), 1000)], codec=Codec.ZSTD)
MANY = build_batch([Record(None, b"", 1000)] * (LOOP_RECORDS_MAX + 1), codec=Codec.GZIP)
LYING = build_batch([Record(None, b"", 1000 + index % 2) for index in range(LOOP_RECORDS_MAX + 1)])
PRODUCE = 9


@pytest.mark.parametrize("large", [HUGE, MANY, LYING], ids=["expands far", "many records", "plain"])
def test_a_large_batch_is_taken(large: bytes) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", segment_bytes=1 << 24)
        answer = await client.produce("t", large)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert node.broker.large_batches.examined_count == 1
        assert node.broker.large_batches.waiting_bytes == 0 == node.broker.request_memory.used_size
        assert (await client.produce("t", batch("small"))).base_offset > 0
        data = await client.fetch("t")
        assert data.records is not None
        assert data.high_watermark == sum(1 for _ in records_of(large)) + 1

    serve_and(story)


def test_a_batch_for_a_topic_with_its_own_codec_is_compressed_beside_the_loop() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", compression_type="gzip")
        plain = build_batch([Record(b"k", bytes(LOOP_RECOMPRESSED_SIZE_MAX), 1000)])
        assert (await client.produce("t", plain)).error_code == 0
        assert node.broker.large_batches.examined_count == 1
        assert (await client.produce("t", batch("small"))).base_offset == 1
        assert node.broker.large_batches.examined_count == 1
        data: Any = await client.fetch("t")
        assert parse_header(data.records).codec is Codec.GZIP

    serve_and(story)


def test_what_a_connection_sends_behind_it_comes_behind_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        for records in (batch("first"), HUGE, batch("third"), HUGE, batch("fifth")):
            client.send(produce_request("t", records), PRODUCE)
        client.send(fetch_request([("t", 0, 5)]), 12)
        answers = [(await client.reply()).responses[0].partition_responses[0] for _ in range(5)]
        assert [answer.base_offset for answer in answers] == [0, 1, 2, 3, 4]
        assert (await client.reply()).responses[0].partitions[0].high_watermark == 5
        assert (await client.produce("t", batch("sixth"))).base_offset == 5

    serve_and(story)


def test_the_other_partitions_of_the_request_are_appended_beside_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 3)
        request = produce_request("t", batch("a"))
        for index, records in ((1, HUGE), (2, b"nonsense")):
            request.topic_data[0].partition_data += (
                produce_request("t", records, partition=index).topic_data[0].partition_data
            )
        answers = (await client.ask(request, PRODUCE)).responses[0].partition_responses
        assert [(each.index, each.error_code) for each in answers] == [
            (0, 0),
            (1, 0),
            (2, ErrorCode.INVALID_RECORD),
        ]

    serve_and(story)


def test_others_are_served_meanwhile() -> None:
    async def story(node: Node) -> None:
        slow, quick = await node.connect(), await node.connect()
        await slow.create("t", 2)
        slow.send(produce_request("t", HUGE), PRODUCE)
        await asyncio.sleep(0)
        assert (await quick.produce("t", batch("quick"), partition=1)).base_offset == 0
        assert (await slow.reply()).responses[0].partition_responses[0].error_code == 0

    serve_and(story)


def test_what_expands_past_the_setting_is_too_large() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        answer = await client.produce("t", HUGE)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "expands past" in (answer.error_message or "")
        assert (await client.produce("t", batch("small"))).base_offset == 0

    serve_and(story, moldau_batch_expanded_bytes_max=2 << 20)


def test_nobody_is_told_where_nobody_asked_but_by_the_end_of_the_connection() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", max_message_bytes=2000000)
        client.send(produce_request("t", HUGE, acks=0), PRODUCE, is_answered=False)
        client.send(produce_request("t", batch("after")), PRODUCE)
        assert (await client.reply()).responses[0].partition_responses[0].base_offset == 1
        damaged = bytearray(LYING)
        damaged[-1] ^= 1
        client.send(produce_request("t", bytes(damaged), acks=0), PRODUCE, is_answered=False)
        with pytest.raises(Closed):
            await client.ask(produce_request("t", batch("never")), PRODUCE)

    serve_and(story)


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        client.send(produce_request("t", HUGE), PRODUCE)
        await asyncio.sleep(0.0001)
        client.close()
        await asyncio.sleep(1)
        assert node.broker.large_batches.waiting_bytes == 0 == node.broker.request_memory.used_size
        other: Client = await node.connect()
        assert (await other.produce("t", batch("x"))).error_code == 0

    serve_and(story)


def test_a_topic_that_goes_away_meanwhile_takes_nothing() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        partition = node.broker.replicas.get("t", 0)
        assert partition is not None
        client.send(produce_request("t", HUGE), PRODUCE)
        while not node.broker.large_batches.waiting_bytes:
            await asyncio.sleep(0)
        node.broker.replicas.by_name.pop("t")
        answer = (await client.reply()).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partition.log.end_offset == 0

    serve_and(story)


def test_an_examination_that_fails_ends_its_connection_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug of ours")

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        monkeypatch.setattr("moldau.broker.apis.large.examine_batch", fail)
        with pytest.raises(Closed):
            await client.ask(produce_request("t", HUGE), PRODUCE)
        monkeypatch.undo()
        assert node.broker.large_batches.waiting_bytes == 0 == node.broker.request_memory.used_size
        other = await node.connect()
        assert (await other.produce("t", HUGE)).base_offset == 0

    serve_and(story)
    assert "a handler failed" in caplog.text
