"""The lag of groups on `/metrics`: what a consumer of the group still receives, under bounds of number and of work."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.exporter import counting
from moldau.broker.exporter.exporter import LagExporter
from moldau.broker.exporter.sample import KEYS_REFRESH_SAMPLES, LagSampler
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import HTTP_PORT, get
from tests.support.coordinators import until_coordinated
from tests.support.node import Client, Node, batch, serve_and
from tests.support.transactional_producer import GROUP, started
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.unit.broker.apis.groups.test_streams_groups import MEMBER, joined

SETTINGS = {"moldau_http_listener": f"http://:{HTTP_PORT}", **TRANSACTIONS}
FRESH_S = 5.1
"""After this time a scrape takes a sample of its own."""


async def lags() -> dict[str, float]:
    """The samples of a scrape that belong to the lags of groups, without the prefix of their names."""
    await asyncio.sleep(FRESH_S)
    status, _, text = await get("/metrics")
    assert status == 200
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and ("consumergroup_group_" in name or "lag_uncounted" in name):
            found[name.removeprefix("kafka_consumergroup_group_")] = float(value)
    return found


async def commit(
    client: Client, group: str, *offsets: int, topic: str = "t", member: str = "", epoch: int = -1
) -> None:
    """Commit an offset of each of the first partitions of a topic."""
    await until_coordinated(client.ask, group)
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    for _ in range(100):
        reply = await client.ask(request, 9)
        if reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(reply)


def test_markers_and_aborted_records_are_no_lag() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        for values, commits in (((b"a", b"b"), True), ((b"x", b"y", b"z"), False), ((b"c",), True)):
            await producer.send("t", *values)
            assert await producer.end(commits=commits) == ErrorCode.NONE
            await asyncio.sleep(0.1)
        for offset, expected in ((0, 3), (1, 2), (2, 1), (5, 1), (8, 0), (9, 0)):
            await commit(producer.client, GROUP, offset)
            seen = await lags()
            of_group, of_partition = (
                f'{{group="{GROUP}",kind="classic"}}',
                f'{{group="{GROUP}",topic="t",partition="0"}}',
            )
            assert seen[f"sum_lag{of_group}"] == seen[f"max_lag{of_group}"] == expected, offset
            assert seen[f"lag{of_partition}"] == seen[f'topic_sum_lag{{group="{GROUP}",topic="t"}}'] == expected
            assert seen[f"offset{of_partition}"] == offset
            assert (seen[f"max_lag_seconds{of_group}"] == 0) == (expected == 0)
            assert not any("uncounted" in name for name in seen)

    serve_and(story, **SETTINGS)


def test_the_seconds_are_the_age_of_the_oldest_record_of_all_partitions() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", partitions=2)
        now_ms = node.broker.environment.wall_ms()
        for partition, age_s in ((0, 300), (1, 100)):
            records = [Record(value=b"v", timestamp=now_ms - age_s * 1_000)]
            await client.produce("t", build_batch(records), partition=partition)
        await commit(client, "g", 0, 0)
        seen = await lags()
        assert 300 <= seen['max_lag_seconds{group="g",kind="classic"}'] < 320
        assert 100 <= seen['lag_seconds{group="g",topic="t",partition="1"}'] < 120
        await commit(client, "g", 1, 0)
        seen = await lags()
        assert 100 <= seen['max_lag_seconds{group="g",kind="classic"}'] < 140
        assert seen['lag_seconds{group="g",topic="t",partition="0"}'] == 0

    serve_and(story, **SETTINGS)


def test_a_streams_group_has_a_lag_too() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        epoch = (await joined(client, 0)).member_epoch
        await client.produce("in", batch("a", "b"))
        await commit(client, "g", 1, 0, topic="in", member=MEMBER, epoch=epoch)
        assert (await lags())['sum_lag{group="g",kind="streams"}'] == 1

    serve_and(story, **SETTINGS)


def test_only_the_groups_that_the_setting_names_are_exported() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        for group in ("orders-1", "orders-2", "payments"):
            await commit(client, group, 0)
        seen = await lags()
        assert {name for name in seen if name.startswith("sum_lag")} == {
            f'sum_lag{{group="{group}",kind="classic"}}' for group in ("orders-1", "orders-2")
        }

    serve_and(story, **SETTINGS, moldau_metrics_lag_groups="orders*,other")


def test_beyond_the_limit_on_partitions_a_group_has_the_lag_of_the_group_alone() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", partitions=3)
        await client.produce("t", batch("a", "b"))
        await commit(client, "a", 0, 0, 0)
        await commit(client, "b", 1)
        seen = await lags()
        assert seen['sum_lag{group="a",kind="classic"}'] == 2 and seen['sum_lag{group="b",kind="classic"}'] == 1
        assert [name for name in seen if name.startswith("lag{")] == ['lag{group="b",topic="t",partition="0"}']

    serve_and(story, **SETTINGS, moldau_metrics_lag_partitions_max=2)


def test_what_a_sample_may_not_read_is_an_upper_bound_and_counted_by_the_next_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "SAMPLE_BYTES_MAX", (200_000, 140_000))

    async def story(node: Node) -> None:
        producer = await started(node)
        for _ in range(6):
            await producer.send("t", b"x" * 50_000)
            assert await producer.end(commits=True) == ErrorCode.NONE
        await commit(producer.client, "g", 0)
        found = []
        for _ in range(4):
            seen = await lags()
            uncounted = seen.get('moldau_group_lag_uncounted_partitions{group="g"}', 0)
            found.append((seen['sum_lag{group="g",kind="classic"}'], uncounted))
        assert found[0][0] > 6 and found[0][1] == 1, found
        assert found[-1] == (6, 0), found

    serve_and(story, **SETTINGS)


def test_a_group_that_stands_still_is_not_looked_at_again() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        await client.create("other")
        for group, topic in (("a", "orders"), ("b", "other")):
            await commit(client, group, 1, topic=topic)
        await client.produce("orders", batch("x", "y"))
        sampler = sampler_of(node)

        async def take() -> dict[str, tuple[int | None, int]]:
            return {group.id: (group.summed_lag().records, id(group.bounds)) for group in await sampler.take_sample()}

        first, second = await take(), await take()
        assert first == second and first["a"][0] == 1
        await client.produce("orders", batch("z"))
        third = await take()
        assert (third["a"][0], third["b"]) == (2, first["b"]) and third["a"][1] != first["a"][1]
        await commit(client, "b", 0, topic="other")
        fourth = await take()
        assert fourth["a"] == third["a"] and fourth["b"][1] != third["b"][1]
        await commit(client, "a", 3, topic="orders")
        assert (await take())["a"][0] == 0

    serve_and(story, **SETTINGS)


def test_a_partition_in_place_of_another_is_not_taken_for_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for topic, count in (("orders", 3), ("other", 5), ("third", 3)):
            await client.create(topic)
            await client.produce(topic, batch(*map(str, range(count))))
        sampler = sampler_of(node)

        async def lag() -> int | None:
            return {group.id: group.summed_lag().records for group in await sampler.take_sample()}["g"]

        await commit(client, "g", 1, topic="orders")
        await commit(client, "g", 2, topic="third")
        assert await lag() == 3
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="orders", partitions=partitions)]
        assert (await client.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)).error_code == ErrorCode.NONE
        await commit(client, "g", 1, topic="other")
        assert await lag() == 5

    serve_and(story, **SETTINGS)


def test_a_count_is_kept_while_the_group_stands_still() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        for group in ("a", "b"):
            await commit(client, group, 1, topic="orders")
        await client.produce("orders", batch("x", "y", "z"))
        sampler = sampler_of(node)
        first = await sampler.take_sample()
        counts = dict(sampler._counter._now)
        assert len(counts) == 1, "groups at the same offset share a count"
        for _ in range(3):
            assert [group.summed_lag() for group in await sampler.take_sample()] == [
                group.summed_lag() for group in first
            ]
            assert sampler._counter._now == counts
        await client.produce("orders", batch("v"))
        assert [group.summed_lag().records for group in await sampler.take_sample()] == [3, 3]
        assert list(sampler._counter._now) == list(counts), "the count continues at the offset that it had reached"

    serve_and(story, **SETTINGS)


def test_groups_that_stand_still_for_long_are_still_asked_for() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for group, topic in (("a", "orders"), ("b", "other"), ("c", "third")):
            await client.create(topic)
            await commit(client, group, 1, topic=topic)
            await client.produce(topic, batch("x", "y"))
        sampler = sampler_of(node)
        for sample in range(2 * KEYS_REFRESH_SAMPLES + 2):
            if sample == KEYS_REFRESH_SAMPLES + 2:
                await client.produce("other", batch("z"))
            expected = {"a": 1, "b": 2 if sample >= KEYS_REFRESH_SAMPLES + 2 else 1, "c": 1}
            assert {group.id: group.summed_lag().records for group in await sampler.take_sample()} == expected, sample

    serve_and(story, **SETTINGS)


def sampler_of(node: Node) -> LagSampler:
    metrics = node.broker.metrics
    exporter = None if metrics is None else metrics._lags
    assert isinstance(exporter, LagExporter)
    return exporter._sampler
