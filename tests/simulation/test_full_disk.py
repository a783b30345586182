"""The disk fills up and has room again while idempotent producers write, and the power is cut: nothing that was
acknowledged is lost, nothing is there twice, and the node never stops for want of room."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.testing.simulation.world import EPOCH_MS
from tests.support.node import Client, Closed, Node, produce_request, serve_and

PARTITIONS = 3
RECORDS = 60
PLENTY = 1 << 40


@dataclass
class History:
    refused: int = 0
    cuts: int = 0
    topics_refused: int = 0
    topics: list[str] = field(default_factory=list)


async def insist(node: Node, client: Client | None, request: object, version: int) -> tuple[Client, object]:
    """Ask until somebody answers."""
    while True:
        try:
            client = client or await node.connect()
            return client, await asyncio.wait_for(client.ask(request, version), 5)
        except (Closed, OSError, TimeoutError):
            if client is not None:
                client.close()
            client = None
            await asyncio.sleep(0.05)


async def produce_all(node: Node, index: int, producer_id: int, history: History) -> None:
    """One record after the other, each again under its own sequence until it is acknowledged."""
    client: Client | None = None
    for number in range(RECORDS):
        record = Record(value=f"{number}:{'x' * 50}".encode(), timestamp=EPOCH_MS + number)
        batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=number)
        while True:
            client, reply = await insist(node, client, produce_request("t", bytes(batch), partition=index), 9)
            error = reply.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
            if error == 0:
                break
            assert error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), error
            history.refused += error == ErrorCode.KAFKA_STORAGE_ERROR
            await asyncio.sleep(0.05)


async def create_topics(node: Node, history: History) -> None:
    """New topics all the while: the metadata log is on the same disk."""
    client: Client | None = None
    number = 0
    while True:
        topic = CreatableTopic(name=f"other-{number}", num_partitions=1, replication_factor=1)
        client, reply = await insist(node, client, CreateTopicsRequest(topics=[topic]), 7)
        error = reply.topics[0].error_code  # type: ignore[attr-defined]
        if error in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            history.topics.append(topic.name)
            number += 1
        else:
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            history.topics_refused += 1
        await asyncio.sleep(0.05)


async def fill_and_empty(node: Node, random: Random, history: History) -> None:
    """The disk is full for a while, has room for a while, and now and then the power goes."""
    disk = node.host.disk
    while True:
        await asyncio.sleep(random.uniform(0.02, 0.2))
        disk.faults.capacity_bytes = disk.used_bytes + random.choice([0, 0, 70, 200, 1000])
        await asyncio.sleep(random.uniform(0.05, 0.6))
        is_cut_while_full = random.random() < 0.4
        if not is_cut_while_full:
            disk.faults.capacity_bytes = PLENTY
        if is_cut_while_full or random.random() < 0.4:
            assert node.host.halted is None, node.host.halted
            node.host.crash()
            history.cuts += 1
            disk.faults.capacity_bytes = PLENTY  # a start needs some
            before = node.broker
            node.boot()
            while node.broker is before or node.broker.readiness.not_ready():
                await asyncio.sleep(0.01)


async def read_all(node: Node, index: int) -> list[str]:
    client = await node.connect()
    await asyncio.sleep(2)  # what the recovery found is shown when it has been synced
    values: list[str] = []
    while True:
        data = await client.fetch("t", len(values), partition=index, partition_max_bytes=1 << 24)
        assert data.error_code == 0
        records = list(records_of(cast("bytes", data.records or b"")))
        values += [(each.value or b"").decode().partition(":")[0] for each in records]
        if len(values) >= data.high_watermark:
            return values
        assert records, f"nothing to read at offset {len(values)} of {data.high_watermark}"


def run(seed: int) -> History:
    history = History()
    random = Random(seed)

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", PARTITIONS, flush_messages=1)
        ids = [
            (await client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)).producer_id
            for _ in range(PARTITIONS)
        ]
        loop = asyncio.get_running_loop()
        nemesis = loop.create_task(fill_and_empty(node, random, history))
        creator = loop.create_task(create_topics(node, history))
        await asyncio.gather(*(produce_all(node, index, ids[index], history) for index in range(PARTITIONS)))
        nemesis.cancel()
        creator.cancel()
        node.host.disk.faults.capacity_bytes = PLENTY
        if node.host.is_up:
            node.host.crash()
        node.boot()
        for index in range(PARTITIONS):
            assert await read_all(node, index) == [str(number) for number in range(RECORDS)]
        known = {topic.name for topic in node.broker.image.topics.by_id.values()}
        assert set(history.topics) <= known, "topics that were acknowledged are there"
        assert not node.broker.logs.offline

    serve_and(story, seed=seed)
    return history


@pytest.mark.parametrize("seed", range(20))
def test_a_disk_that_fills_up_loses_nothing_and_repeats_nothing(seed: int) -> None:
    run(seed)


def test_the_seeds_meet_what_they_are_for() -> None:
    histories = [run(seed) for seed in range(5)]
    assert sum(history.refused for history in histories) > 20
    assert sum(history.topics_refused for history in histories) > 3
    assert sum(history.cuts for history in histories) > 3
