"""The lag of groups in the last hour."""

from __future__ import annotations

import asyncio

from moldau.broker.console.remembered import sparkline_points
from moldau.broker.coordinators.lag_history import GROUPS_MAX, PERIOD_MS, POINTS, LagHistory
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.node import Node, serve_and
from tests.support.transactional_producer import GROUP, started
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.unit.broker.console.test_lag import commit


def test_an_hour_is_kept_and_no_more() -> None:
    history = LagHistory()
    for minute in range(POINTS + 5):
        history.add(minute * PERIOD_MS, {"readers": minute})
    assert history.points_of("readers") == list(range(5, POINTS + 5))


def test_points_begin_where_the_lag_is_known_and_groups_that_are_gone_are_dropped() -> None:
    history = LagHistory()
    history.add(1 * PERIOD_MS, {"gone": 1})
    history.add(2 * PERIOD_MS, {"readers": None})
    history.add(3 * PERIOD_MS, {"readers": 4})
    history.add(4 * PERIOD_MS, {"readers": None})
    assert history.points_of("readers") == [4, None]
    assert history.points_of("gone") == []


def test_of_the_samples_of_a_minute_the_last_one_stands_and_a_minute_without_one_is_unknown() -> None:
    history = LagHistory()
    history.add(7 * PERIOD_MS, {"readers": 1})
    history.add(7 * PERIOD_MS + 15_000, {"readers": 2})
    history.add(9 * PERIOD_MS, {"readers": 3})
    assert history.points_of("readers") == [2, None, 3]
    history.add((9 + POINTS) * PERIOD_MS, {"readers": 4})
    assert history.points_of("readers") == [4]


def test_no_more_groups_have_points_than_memory_is_meant_for() -> None:
    history = LagHistory()
    history.add(0, {f"g{number}": number for number in range(GROUPS_MAX + 1)})
    assert history.points_of(f"g{GROUPS_MAX - 1}") == [GROUPS_MAX - 1]
    assert history.points_of(f"g{GROUPS_MAX}") == []


def test_the_outline_ends_at_the_right_edge_and_leaves_out_what_is_unknown() -> None:
    assert sparkline_points([0, None, 10], 590, 80) == "570,80 590,0"
    assert sparkline_points([0], 590, 80) == "590,80"


def test_the_page_of_a_group_shows_how_its_lag_grew_before_anybody_looked() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        record = Record(value=b"v", timestamp=node.broker.environment.wall_ms())
        await client.produce("t", build_batch([record]))
        await commit(client, 0)
        await asyncio.sleep(60)
        for count in (2, 3):
            await client.produce("t", build_batch([record] * count))
            await asyncio.sleep(60)
        points = (await json_of(f"/groups/{GROUP}"))["history"]
        assert points[-3:] == [1, 3, 6]
        (row,) = (await json_of("/groups"))["groups"]["rows"]
        assert row["trend"] == 5
        assert "<polyline" in (await get(f"/groups/{GROUP}"))[2] and "+5" in (await get("/groups"))[2]

    serve_and(story, **SETTINGS, **TRANSACTIONS)
