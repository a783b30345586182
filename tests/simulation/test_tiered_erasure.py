"""An erase order of a tiered partition: at the end no object in the bucket and no replica has a record that it names,
and everything else is read as before, whoever led, died or was away meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest

from moldau.broker.tiering.remote_partitions import remote_partition
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.erase_orders import Run
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.partition_metadata import parse_uuid
from moldau.storage.log.log import Log
from moldau.storage.tiered.layout import ObjectKind, object_key, parse_key
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.pins import Pin, pin_key
from tests.simulation.test_erasure import idle, receipt, sent_order
from tests.simulation.tiering.compacted import CLEANER, COMPACTED, PAUSE_S, Table
from tests.simulation.tiering.scripts import Stage, expected, told
from tests.support.cluster import CLUSTER_ID
from tests.support.node import batch
from tests.unit.storage.erasure.orders import runs_from

PROPERTIES: Final[dict[str, Any]] = {"moldau_erase_enable": "true"}
NAMED: Final = {0, 3, 4, 5, 11, 12, 26, 27, 28, 29, 30, 31, 45, 54, 55}
"""Some in each part of the log: deep in remote storage, in the last copied segment, and in the active one."""
FILLED: Final = 30
"""Batches of two records that are written before the order."""


def replica_logs(stage: Stage) -> list[Log]:
    found = [node.broker.replicas.get("t", 0) for node in stage.cluster.nodes.values() if node.is_up and node.broker]
    return [each.log for each in found if each is not None]


def is_in_sync(stage: Stage) -> bool:
    """Whether all replicas are: what one of them loses, the others have."""
    brokers = [node.broker for node in stage.cluster.nodes.values() if node.is_up and node.broker]
    found = [each.replicas.get("t", 0) for each in brokers]
    return len(brokers) == 3 and any(each.is_leader and len(each.isr) == 3 for each in found if each is not None)


def is_forgotten(stage: Stage) -> bool:
    """Whether all replicas know that the order is carried out by all."""
    logs = replica_logs(stage)
    return len(logs) == 3 and not any(each.erase_orders.offsets or each.erase_orders.tiered for each in logs)


def objects_with(stage: Stage, named: set[int]) -> list[str]:
    """The .log objects that have a record with one of these offsets."""
    found = []
    for key, stored in stage.bucket.objects.items():
        parsed = parse_key(key)
        is_log = parsed is not None and parsed.partition.topic == "t" and parsed.kind is ObjectKind.LOG
        if is_log and named & {each for each, _ in records_in(bytes(stored.data))}:
            found.append(key)
    return found


def records_in(data: bytes) -> list[tuple[int, bytes]]:
    return [
        (record.offset, bytes(record.value or b""))
        for place, header in iterate_batches(data)
        if not header.is_control
        for record in records_of(data, place, header)
    ]


def left_of(stage: Stage, *order_offsets: int) -> list[tuple[int, bytes]]:
    """All records that were written but those that are named. Each order has one offset, and no record."""
    records = [value for _, value in expected(stage.count)]
    offsets = [each for each in range(stage.count + len(order_offsets)) if each not in order_offsets]
    return [(offset, value) for offset, value in zip(offsets, records, strict=True) if offset not in NAMED]


async def ordered(stage: Stage) -> int:
    """Send the order to whoever leads, until it is appended; its offset."""
    while True:
        with suppress(OSError, TimeoutError):
            answer = await sent_order(stage.cluster, await stage.cluster.led("t"), *runs_from(NAMED))
            if not answer.error_code:
                return int(answer.base_offset)
        await asyncio.sleep(0.5)


async def filled(stage: Stage) -> None:
    await stage.fill(FILLED)
    await stage.copied()
    await stage.cluster.until(lambda: stage.leader().log.local_start_offset > 30, "local segments are deleted", 60)


async def assert_erased(stage: Stage, order_offset: int) -> None:
    assert await stage.read() == left_of(stage, order_offset)
    assert not objects_with(stage, NAMED)
    for its_log in replica_logs(stage):
        for segment in its_log.segments:
            assert not NAMED & {offset for offset, _ in records_in(segment.slice(0, segment.size).read())}


@pytest.mark.parametrize("seed", range(3))
def test_no_object_and_no_replica_keeps_a_record_that_the_order_names(seed: int) -> None:
    async def story(stage: Stage) -> None:
        await filled(stage)
        before = {each.segment_id: each for each in stage.followed(stage.leader_id()).remote_log.read_segments()}
        stored = {key: bytes(each.data) for key, each in stage.bucket.objects.items()}
        offset = await ordered(stage)
        while not is_forgotten(stage):
            seen = await stage.read()
            assert {each for each in left_of(stage, offset) if each[0] < offset} <= set(seen)
            await asyncio.sleep(0.1)
        await assert_erased(stage, offset)
        await stage.copied()
        tiers = [json.loads(await receipt(stage.cluster, node_id))["tier"] for node_id in stage.cluster.nodes]
        (tier,) = [each for each in tiers if each["done_ms"] is not None]
        assert_receipts_tell(stage, before, stored, tier)

    told(seed, story, properties=PROPERTIES)


def test_orders_that_follow_each_other_rewrite_a_remote_segment_once() -> None:
    async def story(stage: Stage) -> None:
        await filled(stage)
        ids, offsets, leader = (b"1" * 16, b"2" * 16), [], stage.leader_id()
        for order_id, named in zip(ids, (sorted(NAMED)[::2], sorted(NAMED)[1::2]), strict=True):
            answer = await sent_order(stage.cluster, leader, *runs_from(named), order_id=order_id)
            assert not answer.error_code
            offsets.append(int(answer.base_offset))
        await stage.cluster.until(lambda: is_forgotten(stage), "both orders are carried out", 120)
        assert await stage.read() == left_of(stage, *offsets)
        assert not objects_with(stage, NAMED)
        tiers = [json.loads(await receipt(stage.cluster, leader, order_id))["tier"] for order_id in ids]
        assert all(each["done_ms"] is not None for each in tiers)
        first, second = ({told["segment_id"]: told for told in each["objects"]} for each in tiers)
        both = first.keys() & second.keys()
        assert both
        assert all(first[each]["replaced_by"] == second[each]["replaced_by"] for each in both)
        by_order = [
            {each for told in found.values() for run in told["erased"] for each in run} for found in (first, second)
        ]
        assert not by_order[0] & by_order[1]

    told(0, story, properties=PROPERTIES)


def assert_receipts_tell(
    stage: Stage, before: dict[bytes, RemoteSegment], stored: dict[str, bytes], tier: dict[str, Any]
) -> None:
    """The receipt has each replaced segment with the checksums of both objects, and nothing else."""
    key, now = remote_partition(stage.leader()), stage.followed(stage.leader_id()).remote_log
    current = {each.segment_id: each for each in now.read_segments()}
    told_of = {parse_uuid(each["segment_id"]): each for each in tier["objects"]}
    held = {name: stored[object_key(key, each.start_offset, name, ObjectKind.LOG)] for name, each in before.items()}
    holding = {name for name, data in held.items() if NAMED & {offset for offset, _ in records_in(data)}}
    assert holding <= set(told_of)
    for name in holding:
        old, entry = before[name], told_of[name]
        new = current[parse_uuid(entry["replaced_by"])]
        assert (new.start_offset, new.last_offset, new.epochs) == (old.start_offset, old.last_offset, old.epochs)
        data = held[name]
        after = bytes(stage.bucket.objects[object_key(key, new.start_offset, new.segment_id, ObjectKind.LOG)].data)
        assert (entry["crc_before"], entry["crc_after"]) == (f"{crc32c(data, 0):08x}", f"{crc32c(after, 0):08x}")
        gone = {offset for offset, _ in records_in(data)} - {offset for offset, _ in records_in(after)}
        assert gone == {offset for first, last in entry["erased"] for offset in range(first, last + 1)}
        assert now.state_of(name) is None, "the replaced segment is deleted without a grace time"


@pytest.mark.parametrize("seed", range(6))
def test_nodes_are_killed_while_the_order_is_carried_out(seed: int) -> None:
    async def story(stage: Stage) -> None:
        random = Random(seed)
        await filled(stage)
        offset = await ordered(stage)
        for _ in range(4):
            await asyncio.sleep(random.random() * 1.5)
            node = stage.cluster.nodes[random.choice(list(stage.cluster.nodes))]
            loses = random.random() < 0.5 and is_in_sync(stage)
            (node.crash if loses else node.kill)()
            await asyncio.sleep(random.random())
            node.boot()
        await stage.cluster.until(lambda: is_forgotten(stage), "all replicas know that the order is done", 300)
        await stage.fill(3)
        await assert_erased(stage, offset)

    told(seed, story, properties=PROPERTIES)


def test_the_heir_of_the_leader_goes_on_where_it_stopped() -> None:
    """The leader has erased its own log and dies before it has looked at remote storage."""

    async def story(stage: Stage) -> None:
        await filled(stage)
        for node_id in stage.cluster.nodes:
            eraser = stage.tiering(node_id).eraser
            eraser.go_on = idle  # type: ignore[method-assign,assignment]
        offset = await ordered(stage)
        await stage.cluster.until(
            lambda: all(each.erase_orders.tiered == [offset] for each in replica_logs(stage)), "all logs are erased"
        )
        assert objects_with(stage, NAMED)
        await stage.fill(8)
        await asyncio.sleep(5)
        for its_log in replica_logs(stage):
            assert its_log.tiered_end_offset <= offset, "the order is not copied before it is carried out"
            assert its_log.segments[0].base_offset <= offset, "the order stays"
        for node in stage.cluster.nodes.values():
            node.kill()
            node.boot()
        await stage.cluster.until(lambda: is_forgotten(stage), "all replicas know that the order is done", 300)
        await assert_erased(stage, offset)

    told(3, story, properties=PROPERTIES)


def test_a_pin_holds_the_objects_and_the_receipt_says_so() -> None:
    async def story(stage: Stage) -> None:
        await filled(stage)
        leader_id = stage.leader_id()
        key = remote_partition(stage.leader())
        first = stage.followed(leader_id).remote_log.read_segments()[0]
        now_ms = stage.broker(leader_id).environment.wall_ms()
        storage = stage.tiering(leader_id).opened.storage
        name = pin_key(key, "job")
        await storage.put(name, Pin(CLUSTER_ID, key, (first.segment_id,), now_ms, now_ms + 10**8, "a test").encode())
        offset = await ordered(stage)

        def is_pinned_alone() -> bool:
            found = stage.followed(leader_id).remote_log
            return [each.segment_id for each, _ in found.superseded_copies()] == [first.segment_id]

        await stage.cluster.until(is_pinned_alone, "all but the pinned segment are gone", 60)
        await asyncio.sleep(5)
        tier = json.loads(await receipt(stage.cluster, leader_id))["tier"]
        assert [parse_uuid(each) for each in tier["pinned"]] == [first.segment_id] and tier["done_ms"] is None
        assert len(objects_with(stage, NAMED)) == 1
        await stage.fill(10)
        await stage.cluster.until(lambda: is_forgotten(stage), "a pin holds up neither copies nor local retention", 60)
        assert len(objects_with(stage, NAMED)) == 1
        await storage.delete([name])
        await stage.cluster.until(lambda: not objects_with(stage, NAMED), "it is deleted when the pin is gone", 1000)
        await assert_erased(stage, offset)

    told(4, story, properties=PROPERTIES)


def test_aborted_records_stay_hidden_in_a_rewritten_segment() -> None:
    """The named record is in a remote segment with data and marker of an aborted transaction."""

    async def story(stage: Stage) -> None:
        await stage.fill(4)
        fields = {"producer_id": 9000, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        assert not stage.leader().append_internal(batch("x", **fields), 1000).error
        ended = stage.leader().end_transaction(9000, 0, 1000, is_commit=False, coordinator_epoch=0)
        assert ended.error is ErrorCode.NONE
        stage.count += 2
        hidden = {8, 9}
        await stage.fill(20)
        await stage.copied()
        log = stage.leader().log
        await stage.cluster.until(lambda: log.local_start_offset > 20, "local segments are deleted", 60)
        leader_id = stage.leader_id()
        found = next(
            each for each in stage.followed(leader_id).remote_log.read_segments() if each.has_transaction_index
        )
        named = next(each for each in range(found.start_offset, found.last_offset + 1) if each not in hidden)
        before = await stage.read()
        answer = await sent_order(stage.cluster, await stage.cluster.led("t"), Run(named, named))
        assert not answer.error_code
        await stage.cluster.until(lambda: is_forgotten(stage), "all replicas know that the order is done", 60)
        assert await stage.read() == [each for each in before if each[0] != named]
        new = stage.followed(leader_id).remote_log.find_segment(found.epochs[0].epoch, found.start_offset)
        assert new is not None and new.segment_id != found.segment_id and new.has_transaction_index

    told(5, story, properties=PROPERTIES)


def test_a_compacted_topic_is_erased_and_cleaned_in_turn() -> None:
    """The key at offset 0 was written once, and is in remote storage when the order comes."""

    async def story(stage: Stage) -> None:
        table = Table(stage)
        for _ in range(2):
            await table.write(30)
            await asyncio.sleep(PAUSE_S)
        await stage.cluster.until(lambda: stage.leader().log.local_start_offset > 0, "local segments are deleted", 60)
        await table.check()
        assert objects_with(stage, {0})
        stage.is_watched = False  # A rule knows of no erasure: the latest value of each key has to be there.
        answer = await sent_order(stage.cluster, await stage.cluster.led("t"), Run(0, 0))
        assert not answer.error_code
        table.erased(b"once")
        for _ in range(20):
            if is_forgotten(stage):
                break
            await table.write(10)
            await asyncio.sleep(PAUSE_S)
        assert is_forgotten(stage)
        assert not objects_with(stage, {0})
        await table.check()

    told(6, story, properties=PROPERTIES | CLEANER, **COMPACTED)
