"""The first page: traffic, disks, releases and uptimes of the brokers, and the groups that lag most."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau import __version__
from moldau.broker.console.nodes import LogDirectory, free_bytes
from moldau.broker.coordinators.node_status import POINT_MS, NodeStatus, ReportedStatus, TrafficPoint, WorstLag
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.security.access import AclOperation, ResourceKind, Unrestricted
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.coordinators import until_coordinated
from tests.support.node import Client, Node, serve_and

BROKER = 4


async def commit(client: Client, group: str, topic: str, offset: int) -> None:
    await until_coordinated(client.ask, group)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    await asyncio.sleep(1)
    assert (await client.ask(request, 8)).topics[0].partitions[0].error_code == 0


def test_traffic_release_uptime_disks_and_what_lags_most_are_shown() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        first = await json_of("/")
        assert first["traffic"] == {"records_in": None, "bytes_in": None, "bytes_out": None}
        await commit(client, "slow", "orders", 0)
        await commit(client, "slower", "orders", 0)
        batch = build_batch([Record(value=b"x" * 1000)] * 10)
        for _ in range(3):
            await client.produce("orders", batch)
        await commit(client, "slow", "orders", 25)
        await asyncio.sleep(61)
        page = await json_of("/")
        (broker,) = page["brokers"]
        told = broker["told"]["status"]
        assert told["version"] == __version__
        assert 60_000 < broker["told"]["up_ms"] < 120_000
        assert page["traffic"]["records_in"] >= 0.5 and page["traffic"]["bytes_in"] > 490
        assert page["used_bytes"] == broker["told"]["used_bytes"] > 30_000 and page["free_bytes"] > 0
        lags = [(each["group"], each["topic"], each["partition"], each["records"]) for each in page["lags"]]
        assert lags == [("slower", "orders", 0, 30), ("slow", "orders", 0, 5)]
        status, _, html = await get("/")
        assert status == 200 and 'href="/groups/slower">30<' in html and "records/s" in html

    serve_and(story, **SETTINGS)


def test_the_status_is_told_only_to_who_names_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()

        async def names(keys: list[str] | None) -> list[str]:
            resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=keys)
            reply: Any = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
            return [each.name for each in reply.results[0].configs]

        assert "moldau.node" not in await names(None)
        assert await names(["moldau.node"]) == ["moldau.node"]

    serve_and(story)


def test_rates_are_those_of_the_last_minute() -> None:
    status = NodeStatus()
    assert told(status).bytes_in is None
    for at in range(10):
        factor = at if at < 5 else 2 * at
        status.add_point(TrafficPoint(at * POINT_MS, 15 * factor, 1500 * factor, 0))
    assert (told(status).records_in, told(status).bytes_in, told(status).bytes_out) == (2.0, 200.0, 0.0)


class HidesOne(Unrestricted):
    """The access of a user who may describe all but the group `hidden`."""

    is_unrestricted = False  # type: ignore[misc]

    def allows(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        assert not logs_denied and operation is AclOperation.DESCRIBE
        return (kind, name) != (ResourceKind.GROUP, "hidden")


def told(status: NodeStatus) -> ReportedStatus:
    return ReportedStatus.from_json(status.told_to(HidesOne()))


def test_what_lags_most_leaves_out_what_the_user_may_not_see_and_what_does_not_lag() -> None:
    status = NodeStatus()
    lags = [WorstLag("a", "t", 0, 5), WorstLag("hidden", "t", 0, 9), WorstLag("b", "t", 1, 7), WorstLag("c", "t", 1, 0)]
    status.set_lags(lags)
    assert [each.group for each in told(status).lags] == ["b", "a"]
    status.set_lags(WorstLag(f"g{at}", "t", 0, at) for at in range(20))
    assert [each.records for each in told(status).lags] == [19, 18, 17, 16, 15]
    assert len(status.told_to(Unrestricted())) < 1_000


def test_two_directories_on_one_volume_have_its_room_once() -> None:
    def directory(total: int, usable: int) -> LogDirectory:
        return LogDirectory("/d", "", total, usable, 0, 0, False)

    assert free_bytes([directory(10, 4), directory(10, 4), directory(20, 5), directory(-1, -1)]) == 9
    assert free_bytes([directory(-1, -1)]) is None


def test_topics_are_sorted_by_their_rate() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("busy", "empty", "old", "slow"):
            await client.create(name)
        for name, count, age_ms in (("busy", 120, 1_000), ("slow", 6, 1_000), ("old", 300, 120_000)):
            now_ms = node.broker.environment.wall_ms()
            await client.produce(name, build_batch([Record(value=b"v", timestamp=now_ms - age_ms)] * count))
        rows = (await json_of("/topics?sort=rate&internal=no"))["topics"]["rows"]
        assert [(each["name"], each["records_a_second"]) for each in rows] == [
            ("busy", 2.0),
            ("slow", 0.1),
            ("empty", 0.0),
            ("old", 0.0),
        ]
        assert "2 records/s" in (await get("/topics"))[2]

    serve_and(story, **SETTINGS)
