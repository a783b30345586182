"""Copies and reads of remote storage stay within a rate: a copy waits, a fetch is answered without records."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from moldau.broker.tiering.traffic import COPY_QUOTA, TransferQuota
from tests.support.node import Node
from tests.support.tiered_node import (
    copied,
    fill,
    is_copied,
    partition_of,
    remote_topic,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)
from tests.unit.broker.tiering.test_reading import read_all, records_in


class _Config:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def integer(self, name: str) -> int:
        if name.endswith("max.bytes.per.second"):
            return self.limit
        return {"quota.window.num": 11, "quota.window.size.seconds": 1}[name.split("copy.")[1]]


class _Settings:
    def __init__(self, limit: int) -> None:
        self.config = _Config(limit)


def quota_at(limit: int, now_ms: list[int]) -> TransferQuota:
    return TransferQuota(COPY_QUOTA, cast("Any", _Settings(limit)), lambda: now_ms[0])


def test_a_burst_delays_what_comes_after_it() -> None:
    now_ms = [0]
    quota = quota_at(1000, now_ms)
    assert quota.throttle_ms() == 0
    quota.record(5000)
    assert (quota.throttle_ms(), quota.rate()) == (4000, 5000.0)
    now_ms[0] = 4000
    assert quota.throttle_ms() == 1000  # 1,250 bytes a second over 4 s
    now_ms[0] = 5000
    assert not quota.is_exceeded()
    now_ms[0] = 11_000
    assert quota.rate() == 0


def test_the_limit_may_change() -> None:
    settings = _Settings(1000)
    quota = TransferQuota(COPY_QUOTA, cast("Any", settings), lambda: 0)
    quota.record(2000)
    assert quota.is_exceeded()
    settings.config.limit = 2000
    assert not quota.is_exceeded()


def test_copies_wait_for_their_quota() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client)
        await fill(client)
        segments = partition_of(node).log.segments[:-1]
        await until(lambda: copied(node), "the first segment is copied")
        began_s, size = node.world.now_s, sum(each.size for each in segments[1:])
        await until(lambda: is_copied(node), "all rolled segments are copied")
        assert node.world.now_s - began_s > 0.5 * size / 100
        assert tiering_of(node).copy_quota.throttle_times.longest(node.broker.environment.monotonic_ms()) > 0

    serve_tiered(story, remote_log_manager_copy_max_bytes_per_second=100)


def test_a_fetch_over_its_quota_is_answered_without_records_and_later_with_them() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        began_s = node.world.now_s
        found = await read_all(client, partition_max_bytes=150)
        assert [offset for offset, _ in found] == list(range(40))
        assert node.world.now_s - began_s > 4
        quota = tiering_of(node).fetch_quota
        quota.record(1_000_000)
        answer = await client.fetch("t", 1, max_wait_ms=10)
        assert (answer.error_code, records_in(answer)) == (0, b"")
        active = partition_of(node).log.active.base_offset
        assert (await client.fetch("t", active, max_wait_ms=10)).records, "what is local is not throttled"
        assert quota.throttle_times.longest(node.broker.environment.monotonic_ms()) > 0
        await asyncio.sleep(0)

    serve_tiered(story, remote_log_manager_fetch_max_bytes_per_second=300)
