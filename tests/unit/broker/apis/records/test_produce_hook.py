"""A produce that repeats the one before it is answered to the byte as one that nobody has seen before."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from moldau.broker.network.connection import Connection
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.primitives import uvarint
from tests.support.node import Client, Node, batch, serve_and

TOPICS = ("t", "u")


def frame(request: ProduceRequest, version: int, correlation_id: int, client_id: bytes = b"me") -> bytes:
    return size_prefixed(request_frame(request, version, correlation_id, client_id))


def produce(topic: bytes | str, records: bytes | None, *, acks: int = -1, index: int = 0) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records)]
    named = TopicProduceData(topic_id=topic) if isinstance(topic, bytes) else TopicProduceData(name=topic)
    named.partition_data = data
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[named])


async def reply(client: Client) -> bytes:
    (size,) = struct.unpack(">i", await client.reader.readexactly(4))
    return await client.reader.readexactly(size)


def connections(node: Node) -> list[Connection]:
    return [each for listener in node.broker.listeners for each in listener.connections]


def remembered(node: Node) -> int:
    """How many connections know what their producer repeats."""
    return sum(each.hook is not None for each in connections(node))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_repeated_and_first_produces_are_answered_alike(version: int, acks: int) -> None:
    async def story(node: Node) -> None:
        admin = await node.connect()
        ids = {name: await admin.create(name) for name in TOPICS}
        client = await node.connect()

        def place(name: str) -> bytes | str:
            return ids[name] if version >= 13 else name

        async def ask(name: str, records: bytes, correlation_id: int, on: Client) -> bytes:
            on.writer.write(frame(produce(place(name), records, acks=acks), version, correlation_id))
            return await reply(on)

        sizes = [1, 30, 100, 127, 200, 16_300, 16_400, 3, 40_000]
        repeated, single = [], []
        for number, size in enumerate(sizes):
            records = batch("x" * size)
            repeated.append(await ask("t", records, number, client))
            assert remembered(node) == (number >= 1 and version >= 5)
            fresh = await node.connect()  # its first produce: nothing to repeat
            single.append(await ask("u", records, number, fresh))
            fresh.close()
        length = b"\x01" if version < 9 else b"\x02"
        named_alike = [each.replace(length + b"u", length + b"t").replace(ids["u"], ids["t"]) for each in single]
        assert repeated == named_alike
        partitions = [node.broker.replicas.by_name[name][0] for name in TOPICS]
        assert partitions[0].log.size == partitions[1].log.size and partitions[0].messages_in == len(sizes)
        assert partitions[0].bytes_in == partitions[1].bytes_in

    serve_and(story)


def test_what_is_not_the_same_again_is_looked_at_as_a_whole() -> None:
    async def story(node: Node) -> None:
        admin = await node.connect()
        for name in TOPICS:
            await admin.create(name, partitions=2)
        client = await node.connect()
        good = batch("x")
        damaged = good[:-1] + bytes([good[-1] ^ 1])
        transactional = batch("x", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)

        async def errors(*requests: ProduceRequest) -> list[int]:
            for number, request in enumerate(requests):
                client.writer.write(frame(request, 8, number))
            found = []
            for number in range(len(requests)):
                answer = await reply(client)
                assert struct.unpack_from(">i", answer) == (number,)
                found.append(struct.unpack_from(">h", answer, 4 + 4 + 2 + 1 + 4 + 4)[0])
            return found

        same = produce("t", good)
        assert await errors(same, same, same) == [0, 0, 0]
        assert remembered(node) == 1
        assert await errors(produce("t", damaged), same) == [2, 0]
        assert await errors(same, produce("t", transactional), same) == [0, 53, 0]
        assert await errors(produce("t", None), produce("t", b""), same, same) == [87, 87, 0, 0]
        assert (
            await errors(produce("t", good, index=1), produce("u", good), produce("t", good, acks=1), same) == [0] * 4
        )
        assert await errors(produce("t", good, index=7), same) == [3, 0]
        ends = [node.broker.replicas.by_name["t"][index].log.end_offset for index in (0, 1)]
        assert ends == [3 + 1 + 2 + 2 + 2 + 1, 1]

    serve_and(story)


def test_a_topic_that_is_deleted_and_made_again_is_another() -> None:
    async def story(node: Node) -> None:
        from moldau.protocol.messages.delete_topics import DeleteTopicsRequest

        admin = await node.connect()
        await admin.create("t")
        client = await node.connect()
        for _ in range(3):
            assert (await client.produce("t", batch("x"))).error_code == 0
        await admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert (await client.produce("t", batch("x"))).error_code == 3
        await admin.create("t")
        assert (await client.produce("t", batch("x"))).base_offset == 0

    serve_and(story)


def test_replies_that_wait_for_a_flush_keep_their_order() -> None:
    async def story(node: Node) -> None:
        admin = await node.connect()
        await admin.create("slow", flush_messages=1)
        await admin.create("fast")
        client = await node.connect()
        for number in range(12):
            name = "slow" if number % 6 < 3 else "fast"
            client.writer.write(frame(produce(name, batch("x")), 9, number))
        for number in range(12):
            assert struct.unpack_from(">i", await reply(client)) == (number,)
        assert node.broker.replicas.by_name["slow"][0].high_watermark == 6

    serve_and(story)


def test_tags_of_a_later_release_are_not_mistaken_for_records() -> None:
    async def story(node: Node) -> None:
        admin = await node.connect()
        await admin.create("t")
        client = await node.connect()
        request: Any = produce("t", batch("x"))
        plain = frame(request, 9, 1)
        tagged = plain[4:-1] + uvarint(1) + uvarint(99) + uvarint(2) + b"zz"
        for number in range(4):
            client.writer.write(struct.pack(">i", len(tagged)) + tagged)
            assert len(await reply(client)) > 20
            assert remembered(node) == 0, number
        assert node.broker.replicas.by_name["t"][0].log.end_offset == 4

    serve_and(story)


@pytest.mark.parametrize("flush_messages", [1, 1 << 60])
def test_frames_that_arrive_together_are_answered_as_those_that_come_alone(flush_messages: int) -> None:
    async def story(node: Node) -> None:
        admin = await node.connect()
        for name in TOPICS:
            await admin.create(name, flush_messages=flush_messages)
        good = [batch("x" * size) for size in (1, 200, 30, 16_000, 3, 70, 5, 90, 100, 127, 1000)]
        damaged = good[0][:-1] + bytes([good[0][-1] ^ 1])
        sent = [*good[:7], damaged, *good[7:]]

        together = await node.connect()
        for number in range(2):
            together.writer.write(frame(produce("t", good[0]), 9, number))
            await reply(together)
        assert remembered(node) == 1
        together.writer.write(b"".join(frame(produce("t", each), 9, number) for number, each in enumerate(sent)))
        answers = [await reply(together) for _ in sent]

        alone = await node.connect()
        for number in range(2):
            alone.writer.write(frame(produce("u", good[0]), 9, number))
            await reply(alone)
        single = []
        for number, each in enumerate(sent):
            alone.writer.write(frame(produce("u", each), 9, number))
            single.append(await reply(alone))
        assert answers == [each.replace(b"\x02u", b"\x02t") for each in single]
        partitions = [node.broker.replicas.by_name[name][0] for name in TOPICS]
        assert partitions[0].log.end_offset == partitions[1].log.end_offset == 2 + len(good)
        assert partitions[0].bytes_in == partitions[1].bytes_in
        assert partitions[0].high_watermark == partitions[1].high_watermark

    serve_and(story)
