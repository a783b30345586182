"""The lag of groups in the last hour."""

from __future__ import annotations

import asyncio

from moldau.broker.console.lag_history import GROUPS_MAX, PATIENCE_MS, POINTS, LagHistory, outline
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.node import Node, serve_and
from tests.support.transactional_producer import GROUP, started
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.unit.broker.console.test_lag import commit


def test_an_hour_is_kept_and_no_more() -> None:
    history = LagHistory()
    for minute in range(POINTS + 5):
        history.add({"readers": minute})
    assert history.of("readers") == list(range(5, POINTS + 5))


def test_points_begin_where_the_lag_is_known_and_groups_that_are_gone_are_dropped() -> None:
    history = LagHistory()
    history.add({"gone": 1})
    history.add({"readers": None})
    history.add({"readers": 4})
    history.add({"readers": None})
    assert history.of("readers") == [4, None]
    assert history.of("gone") == []


def test_no_more_groups_have_points_than_memory_is_meant_for() -> None:
    history = LagHistory()
    history.add({f"g{number}": number for number in range(GROUPS_MAX + 1)})
    assert history.of(f"g{GROUPS_MAX - 1}") == [GROUPS_MAX - 1]
    assert history.of(f"g{GROUPS_MAX}") == []


def test_sampling_begins_once_and_ends_an_hour_after_the_last_visit() -> None:
    history = LagHistory()
    assert history.visited(0)
    assert not history.visited(1_000)
    history.add({"readers": 1})
    assert history.goes_on(1_000 + PATIENCE_MS)
    assert not history.goes_on(1_001 + PATIENCE_MS)
    assert history.of("readers") == []
    assert history.visited(2_000 + PATIENCE_MS)


def test_the_outline_ends_at_the_right_edge_and_leaves_out_what_is_unknown() -> None:
    assert outline([0, None, 10], 590, 80) == "570,80 590,0"
    assert outline([0], 590, 80) == "590,80"


def test_the_page_of_a_group_shows_how_its_lag_grew() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        record = Record(value=b"v", timestamp=node.broker.environment.wall_ms())
        await client.produce("t", build_batch([record]))
        await commit(client, 0)
        assert len((await json_of(f"/groups/{GROUP}"))["history"]) <= 1, "the first look begins the sampling"
        await asyncio.sleep(1)
        for count in (2, 3):
            await client.produce("t", build_batch([record] * count))
            await asyncio.sleep(60)
        assert (await json_of(f"/groups/{GROUP}"))["history"] == [1, 3, 6]
        (row,) = (await json_of("/groups"))["groups"]["rows"]
        assert row["trend"] == 5
        assert "<polyline" in (await get(f"/groups/{GROUP}"))[2] and "+5" in (await get("/groups"))[2]

    serve_and(story, **SETTINGS, **TRANSACTIONS)
