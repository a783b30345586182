"""Produce: what is taken, what is refused and how, and when the reply leaves."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from moldau.broker.apis import parts
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.primitives import crc32c
from moldau.storage.segment import segment
from moldau.testing.simulation.disk_calls import Operation
from tests.support.node import Client, Closed, Node, batch, fetch_request, produce_request, serve_and


def idempotent(sequence: int, *values: str, epoch: int = 0) -> bytes:
    return batch(*values, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def patched(records: bytes, position: int, form: str, value: int) -> bytes:
    changed = bytearray(records)
    struct.pack_into(form, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:]), 0))
    return bytes(changed)


def test_a_batch_is_taken_in_every_version_and_offsets_follow_one_another() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t")
        for version in range(3, 14):
            topic = topic_id if version >= 13 else "t"
            reply = await client.ask(produce_request(topic, batch("a", "b")), version)
            (answer,) = reply.responses[0].partition_responses
            assert (answer.error_code, answer.base_offset) == (0, 2 * (version - 3))
            assert answer.log_append_time_ms == -1
            assert answer.log_start_offset == (0 if version >= 5 else -1)

    serve_and(story)


def test_what_is_not_there_is_unknown_by_name_and_by_id_even_with_impossible_acks() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t")
        for acks in (-1, 7):
            answer = await client.produce("nope", batch("a"), acks=acks)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = await client.produce("t", batch("a"), partition=1, acks=acks)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic, index, error in (
                (b"\7" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
                (bytes(16), 0, ErrorCode.UNKNOWN_TOPIC_ID),
                (topic_id, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ):
                reply = await client.ask(produce_request(topic, batch("a"), partition=index, acks=acks), 13)
                assert reply.responses[0].partition_responses[0].error_code == error

    serve_and(story)


def test_acks_are_minus_one_zero_or_one() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        assert (await client.produce("t", batch("a"), acks=1)).base_offset == 0
        for acks in (7, 2, -2):
            answer = await client.produce("t", batch("a"), acks=acks)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
        assert node.broker.replicas.by_name["t"][0].log.end_offset == 1

    serve_and(story)


def test_without_acks_there_is_no_reply_and_a_refusal_closes_the_connection() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        client.send(produce_request("t", batch("a"), acks=0), 9, is_answered=False)
        await client.ask(MetadataRequest(topics=[]), 12)
        assert node.broker.replicas.by_name["t"][0].log.end_offset == 1
        client.send(produce_request("nope", batch("a"), acks=0), 9, is_answered=False)
        with pytest.raises(Closed):
            await client.reply()

    serve_and(story)


REFUSED = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "cut short": (batch("a")[:-3], ErrorCode.INVALID_RECORD),
    "two batches": (batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
    "wrong checksum": (batch("a")[:-1] + b"\x7f", ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (patched(batch("a"), 16, ">b", 1), ErrorCode.INVALID_RECORD),
    "more records than said": (patched(batch("a", "b"), 57, ">i", 1), ErrorCode.INVALID_RECORD),
    "a control batch": (batch("a", is_control=True), ErrorCode.INVALID_RECORD),
    "a transaction": (
        batch("a", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


def test_what_is_refused_leaves_no_trace() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        got = {name: (await client.produce("t", records)).error_code for name, (records, _) in REFUSED.items()}
        assert got == {name: error for name, (_, error) in REFUSED.items()}
        partition = node.broker.replicas.by_name["t"][0]
        assert (partition.log.end_offset, partition.last_stable_offset) == (0, 0)

    serve_and(story)


def test_a_transactional_id_alone_refuses_nothing() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        request = produce_request("t", batch("a"))
        request.transactional_id = "x"
        reply = await client.ask(request, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0

    serve_and(story)


def test_a_batch_above_the_limit_of_the_topic_is_too_large() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", max_message_bytes=200)
        assert (await client.produce("t", batch("a" * 40))).error_code == 0
        assert (await client.produce("t", batch("a" * 100))).error_code == ErrorCode.MESSAGE_TOO_LARGE

    serve_and(story)


def test_a_compacted_topic_says_which_records_have_no_key() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", cleanup_policy="compact")
        keyless = batch("a", "b").replace(b"\x02b\x02b", b"\x01\x04bb")
        answer = await client.produce("t", patched(keyless, 61, ">b", keyless[61]))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [1]
        assert answer.record_errors[0].batch_index_error_message

    serve_and(story)


def test_zstandard_is_for_clients_that_know_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        records = batch("a", codec=Codec.ZSTD)
        assert (await client.produce("t", records, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce("t", records, version=7)).error_code == 0

    serve_and(story)


def test_idempotence_sees_repetitions_gaps_and_old_epochs() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")

        async def answer(records: bytes) -> tuple[int, int]:
            got = await client.produce("t", records)
            return got.error_code, got.base_offset

        assert await answer(idempotent(0, "a", "b")) == (0, 0)
        assert await answer(idempotent(2, "c")) == (0, 2)
        assert await answer(idempotent(0, "a", "b")) == (0, 0)
        assert await answer(idempotent(9, "x")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await answer(idempotent(5, "x", epoch=1)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await answer(idempotent(0, "d", epoch=1)) == (0, 3)
        assert await answer(idempotent(3, "x")) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)

    serve_and(story)


def test_more_in_sync_replicas_than_there_are_replicas_are_not_asked_for() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", min_insync_replicas=2)
        assert (await client.produce("t", batch("a"))).error_code == 0
        partition = node.broker.replicas.by_name["t"][0]
        partition.min_insync_replicas = 2  # as with two replicas, one of them behind
        assert (await client.produce("t", batch("a"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await client.produce("t", batch("a"), acks=1)).error_code == 0

    serve_and(story)


def test_clients_do_not_write_what_coordinators_write() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("__consumer_offsets")
        answer = await client.produce("__consumer_offsets", batch("a"))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    serve_and(story)


def test_log_append_time_is_told() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", message_timestamp_type="LogAppendTime")
        answer = await client.produce("t", batch("a"))
        assert answer.log_append_time_ms > 1_000_000

    serve_and(story)


def unflushed(node: Node) -> int:
    return node.broker.replicas.by_name["t"][0].log.unflushed_count


def test_where_each_message_is_flushed_the_reply_waits_for_the_disk() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1)
        assert (await client.produce("t", batch("a"))).base_offset == 0
        assert unflushed(node) == 0
        client.send(produce_request("t", batch("b"), acks=0), 9, is_answered=False)
        await asyncio.sleep(1)
        assert unflushed(node) == 0, "a flush is due without acks as well"

    serve_and(story)


def test_replies_keep_their_order_when_one_of_them_waits_for_the_disk() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("slow", flush_messages=1)
        await client.create("fast")
        for i in range(10):
            client.send(produce_request(("slow", "fast")[i % 2], batch(str(i))), 9)
        offsets = [(await client.reply()).responses[0].partition_responses[0].base_offset for _ in range(10)]
        assert offsets == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

    serve_and(story)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_failed_sync_nobody_is_told_that_the_record_is_there(seed: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1)
        node.host.disk.faults.sync_error = 1.0
        client.send(produce_request("t", batch("a")), 9)
        client.send(produce_request("t", batch("b")), 9)
        with pytest.raises((Closed, TimeoutError)):
            await asyncio.wait_for(client.reply(), 5)

    serve_and(story, seed=seed, may_halt=True)


def test_a_write_that_fails_is_a_storage_error_and_so_is_every_one_after_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 2)
        assert (await client.produce("t", batch("a"), partition=1)).error_code == 0
        disk = node.host.disk
        disk.fail(Operation.WRITE, disk.counts[Operation.WRITE] + 1)
        answer = await client.produce("t", batch("b"), partition=1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (await client.produce("t", batch("c"), partition=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    serve_and(story, log_dirs="/data,/data2")


def test_a_request_of_several_partitions_is_answered_for_each() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 3)
        request = produce_request("t", batch("a"))
        for index, records in ((1, batch("a")[:-1] + b"\x7f"), (2, batch("b"))):
            request.topic_data += produce_request("t", records, partition=index).topic_data
        reply = await client.ask(request, 9)
        answers: list[PartitionProduceResponse] = [each.partition_responses[0] for each in reply.responses]
        assert [each.error_code for each in answers] == [0, ErrorCode.CORRUPT_MESSAGE, 0]

    serve_and(story)


async def read(client: Client, topic: str) -> bytes:
    reply = await client.ask(fetch_request([(topic, 0, 0)]), 12)
    records: bytes = reply.responses[0].partitions[0].records
    return bytes(records)


def test_what_was_produced_is_read_back_byte_for_byte_but_for_offset_and_epoch() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        records = batch("a", "b", codec=Codec.GZIP)
        await client.produce("t", records)
        got = await read(client, "t")
        assert got[:12] == records[:12] and got[16:] == records[16:]
        assert got[12:16] == bytes(4)

    serve_and(story)


def test_what_was_written_is_brought_to_the_disk_in_steps_and_counts_as_no_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "WRITE_BACK_SIZE", 10_000)

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        flusher = node.broker.flusher
        for count in range(1, 4):
            for _ in range(3):
                assert flusher.write_back_count == count - 1
                await client.produce("t", batch("x" * 1_750))
                await asyncio.sleep(0.1)
            assert flusher.write_back_count == count
        log = node.broker.replicas.by_name["t"][0].log
        assert log.recovery_point == 0 and flusher.sync_count == 0
        assert len((await client.fetch("t")).records or b"") == log.size

    serve_and(story)


def test_the_later_parts_of_a_long_request_are_not_read_from_the_buffer_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All connections of a node receive into one buffer, and a request of more than 256 partitions is handled in
    parts. In the simulator no time passes between them, and a slice has 16 of them."""
    monkeypatch.setattr(parts, "SLICE_PARTS_MAX", 1)
    monkeypatch.setattr(parts.LongRequests, "wait_for_turn", lambda self: asyncio.sleep(0.01))

    def request(value: str) -> ProduceRequest:
        partitions = [PartitionProduceData(index=index, records=batch(f"{value}{index:03}")) for index in range(600)]
        topic = TopicProduceData(name="t", partition_data=partitions)
        return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic])

    async def story(node: Node) -> None:
        clients = [await node.connect() for _ in range(3)]
        await clients[0].create("t", 600)
        for client, value in zip(clients, "abc", strict=True):
            client.send(request(value), 9)
            await asyncio.sleep(0.005)
        for client in clients:
            (answer,) = (await client.reply()).responses
            assert {each.error_code for each in answer.partition_responses} == {ErrorCode.NONE}
        for index in range(600):
            fetched: Any = await clients[0].fetch("t", 0, partition=index)
            found = bytes(fetched.records)
            assert [value for value in "abc" if f"{value}{index:03}".encode() in found] == ["a", "b", "c"]
        assert node.broker.request_memory.used_size == 0

    serve_and(story)
