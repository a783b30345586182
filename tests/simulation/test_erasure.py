"""An erase order in a cluster: at the end the named records, and nothing else, are gone on every replica, and no leader
gives a consumer one of them once a replica has said that it is done.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run, erase_order_batch, new_erase_order, receipt_setting
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.replication.partition import Partition
from tests.support.cluster import Cluster
from tests.support.node import fetch_request, produce_request
from tests.unit.storage.compaction.histories import Stored, stored
from tests.unit.storage.erasure.orders import PREDICATE_HASH, runs_from
from tests.unit.storage.erasure.test_erasing import assert_exactly_gone, producers_of

TOPIC = "t"
SETTINGS = {"moldau.erase.enable": "true", "log.index.interval.bytes": "200"}
NAMED = {0, 2, 3, 9, 10, 11, 15, 17, 19}
ORDER_ID = bytes(range(16))


def cluster_of(seed: int, **properties: str) -> Cluster:
    given = {name.replace(".", "_"): value for name, value in (SETTINGS | properties).items()}
    return Cluster(seed, **given)  # type: ignore[arg-type]


def replica(cluster: Cluster, node_id: int) -> Partition | None:
    broker = cluster.nodes[node_id].broker
    return broker.replicas.get(TOPIC, 0) if broker is not None and cluster.nodes[node_id].is_up else None


def replicas(cluster: Cluster) -> list[Partition]:
    found = [replica(cluster, node_id) for node_id in cluster.nodes]
    return [each for each in found if each is not None]


async def write_history(cluster: Cluster) -> int:
    """Plain and idempotent batches of each codec, a committed and an aborted transaction and one that stays open, over
    several segments on three replicas. Returns the leader.
    """
    await cluster.settled()
    await cluster.create(TOPIC, internal_segment_bytes=1100)
    leader = await cluster.led(TOPIC)
    partition = replica(cluster, leader)
    assert partition is not None
    now_ms = wall_ms(cluster, leader)
    for number in range(6):
        fields: dict[str, Any] = {"codec": Codec(number % 5), "producer_id": 5, "producer_epoch": 0}
        appended(partition, now_ms, f"a{number}", f"b{number}", base_sequence=2 * number, **fields)
        if number % 2 == 0:
            fields = {"producer_id": 7 + number, "producer_epoch": 0, "is_transactional": True}
            appended(partition, now_ms, f"c{number}", "x" * 250, base_sequence=0, **fields)
            if number < 4:
                ended = partition.end_transaction(7 + number, 0, now_ms, is_commit=not number, coordinator_epoch=0)
                assert not ended.error
    appended(partition, now_ms, "last")
    await cluster.until(lambda: are_equal(cluster), "all replicas have the history")
    return leader


def wall_ms(cluster: Cluster, node_id: int) -> int:
    broker = cluster.nodes[node_id].broker
    assert broker is not None
    return broker.environment.wall_ms()


def appended(partition: Partition, now_ms: int, *values: str, **fields: Any) -> None:
    """Append a batch. Its producer is known after a start too: its last record is young."""
    records = [Record(value.encode(), value.encode(), now_ms - 7 * number) for number, value in enumerate(values)]
    result = partition.append_internal(build_batch(records, **fields), now_ms)
    assert not result.error, result


def are_equal(cluster: Cluster) -> bool:
    ends = {each.log.end_offset for each in replicas(cluster)} | {each.high_watermark for each in replicas(cluster)}
    return len(replicas(cluster)) == len(cluster.nodes) and len(ends) == 1


async def sent_order(cluster: Cluster, node_id: int, *runs: Run, acks: int = -1, order_id: bytes = ORDER_ID) -> Any:
    """The answer of a node to an order."""
    order = erase_order_batch(new_erase_order(order_id, PREDICATE_HASH, runs), 1000)
    client = await cluster.connect(node_id)
    reply = await client.ask(produce_request(TOPIC, order, acks=acks), 9)
    client.close()
    return reply.responses[0].partition_responses[0]


def has_erased(cluster: Cluster, count: int = 3) -> bool:
    """Whether so many replicas have carried out all orders."""
    done = [each for each in replicas(cluster) if not each.log.erase_orders.offsets and each.high_watermark > 21]
    return len(done) >= count


Producers = dict[int, tuple[int, int, int]]


def assert_erased_everywhere(cluster: Cluster, before: list[Stored], producers: Producers) -> None:
    aborted = {str(each.log.aborted_transactions(0, 20)) for each in replicas(cluster)}
    assert len(aborted) == 1 and "producer_id=9" in aborted.pop()
    for each in replicas(cluster):
        after = [found for found in stored(each.log) if found.header.base_offset <= before[-1].header.base_offset]
        assert_exactly_gone(before, after, NAMED)
        assert producers_of(each.log) == producers


async def consumed(cluster: Cluster, node_id: int) -> set[int]:
    """The offsets that a consumer reads at a node, as far as it gives any."""
    offset, found = 0, set()
    client = await cluster.connect(node_id)
    while True:
        reply = await client.ask(fetch_request([(TOPIC, 0, offset)]), 11)
        part = reply.responses[0].partitions[0]
        data = bytes(part.records or b"")
        batches = list(iterate_batches(data))
        if part.error_code or not batches:
            break
        for position, header in batches:
            if not header.is_control:
                found |= {record.offset for record in records_of(data, position, header)}
        offset = batches[-1][1].next_offset
    client.close()
    return found


async def receipt(cluster: Cluster, node_id: int, order_id: bytes = ORDER_ID) -> str:
    name = receipt_setting(0, order_id.hex(), 0)
    resource = DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=[name])
    client = await cluster.connect(node_id)
    reply = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    client.close()
    (entry,) = reply.results[0].configs
    assert entry.name == name
    return str(entry.value)


@pytest.mark.parametrize("seed", range(2))
def test_every_replica_erases_what_the_order_names_and_nothing_else(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        leader = await write_history(cluster)
        partition = replica(cluster, leader)
        assert partition is not None
        before, producers = stored(partition.log), producers_of(partition.log)
        assert await receipt(cluster, leader) == ""
        assert (await sent_order(cluster, leader, *runs_from(NAMED))).error_code == 0
        await cluster.until(lambda: has_erased(cluster), "all replicas erase")
        assert_erased_everywhere(cluster, before, producers)
        for node_id in cluster.nodes:
            assert '"principal": "User:ANONYMOUS"' in await receipt(cluster, node_id)
        assert not NAMED & await consumed(cluster, leader)

    with cluster_of(seed) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", range(4))
def test_nodes_are_killed_while_they_erase(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        random = Random(seed)
        leader = await write_history(cluster)
        partition = replica(cluster, leader)
        assert partition is not None
        before, producers = stored(partition.log), producers_of(partition.log)
        assert (await sent_order(cluster, leader, *runs_from(NAMED))).error_code == 0
        for _ in range(3):
            await asyncio.sleep(random.random())
            node = cluster.nodes[random.choice(list(cluster.nodes))]
            (node.crash if seed % 2 else node.kill)()
            await asyncio.sleep(random.random())
            node.boot()
        await cluster.until(lambda: are_equal(cluster) and has_erased(cluster), "all replicas erase")
        assert_erased_everywhere(cluster, before, producers)

    with cluster_of(seed) as cluster:
        cluster.live(story)


def test_an_order_that_was_never_flushed_is_found_again() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await write_history(cluster)
        partition = replica(cluster, leader)
        assert partition is not None
        before, producers = stored(partition.log), producers_of(partition.log)
        assert (await sent_order(cluster, leader, *runs_from(NAMED))).error_code == 0
        for node in cluster.nodes.values():
            its = replica(cluster, node.id)
            assert its is not None
            assert its.log.erase_orders.offsets and its.log.recovery_point < its.log.end_offset
            node.kill()
            node.boot()
        await cluster.until(lambda: are_equal(cluster) and has_erased(cluster), "all replicas erase")
        assert_erased_everywhere(cluster, before, producers)

    with cluster_of(6) as cluster:
        cluster.live(story)


def test_a_replica_that_was_away_gives_nothing_before_it_erased() -> None:
    """The heir of the leader has the order and every record, and its eraser has not come to the order yet."""

    async def story(cluster: Cluster) -> None:
        leader = await write_history(cluster)
        partition = replica(cluster, leader)
        assert partition is not None
        before = stored(partition.log)
        away = next(node for node in cluster.nodes.values() if node.id != leader)
        away.kill()
        await cluster.until(lambda: len(partition.isr) == 2, "it is missed")
        assert (await sent_order(cluster, leader, *runs_from(NAMED))).error_code == 0
        await cluster.until(lambda: has_erased(cluster, 2), "the others erase")
        away.boot()
        await cluster.until(lambda: away.broker is not None, "it starts")
        assert away.broker is not None
        eraser = away.broker.cleaner.eraser
        visit = eraser._visit
        eraser._visit = idle  # type: ignore[method-assign,assignment]
        await cluster.until(lambda: len(partition.isr) == 3, "it is in sync")
        cluster.nodes[leader].kill()
        while (heir := await cluster.led(TOPIC)) == leader:
            await asyncio.sleep(0.5)
        if heir != away.id:
            cluster.nodes[leader].boot()
            await cluster.until(lambda: are_equal(cluster), "the old leader is back")
            cluster.nodes[heir].kill()
            cluster.nodes[leader].kill()
            cluster.nodes[leader].boot()
            while await cluster.led(TOPIC) != away.id:
                await asyncio.sleep(0.5)
        its = replica(cluster, away.id)
        assert its is not None
        assert its.log.erase_orders.offsets, "it has not erased yet"
        assert not NAMED & await consumed(cluster, away.id)
        eraser._visit = visit  # type: ignore[method-assign]
        await cluster.until(lambda: not its.log.erase_orders.offsets, "it erases")
        assert not NAMED & await consumed(cluster, away.id)
        assert await consumed(cluster, away.id)
        assert_exactly_gone(before, stored(its.log)[: len(before)], NAMED)

    with cluster_of(5) as cluster:
        cluster.live(story)


async def idle(*_: object) -> None:
    """In the place of an eraser's visit to a log."""


REFUSALS: tuple[tuple[dict[str, str], Run, ErrorCode, str], ...] = (
    ({}, Run(0, 10_000), ErrorCode.INVALID_RECORD, "at or past the high watermark"),
    ({}, Run(3, 1), ErrorCode.INVALID_RECORD, "ends before it begins"),
    ({"moldau.erase.enable": "false"}, Run(0, 0), ErrorCode.POLICY_VIOLATION, "moldau.erase.enable is false"),
)


@pytest.mark.parametrize(("settings", "run", "error", "said"), REFUSALS)
def test_an_order_that_is_refused_changes_nothing(
    settings: dict[str, str], run: Run, error: ErrorCode, said: str
) -> None:
    async def story(cluster: Cluster) -> None:
        leader = await write_history(cluster)
        partition = replica(cluster, leader)
        assert partition is not None
        end_offset = partition.log.end_offset
        answer = await sent_order(cluster, leader, run)
        assert (answer.error_code, answer.base_offset) == (error, -1)
        assert said in answer.error_message
        assert (await sent_order(cluster, leader, Run(0, 0), acks=1)).error_code
        assert partition.log.end_offset == end_offset

    with cluster_of(1, **settings) as cluster:
        cluster.live(story)


def test_other_control_batches_of_clients_are_refused_as_before() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await write_history(cluster)
        client = await cluster.connect(leader)
        reply = await client.ask(produce_request(TOPIC, build_batch([Record(b"k", b"v")], is_control=True)), 9)
        client.close()
        answer = reply.responses[0].partition_responses[0]
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.INVALID_RECORD,
            "clients write no control records",
        )

    with cluster_of(2) as cluster:
        cluster.live(story)
