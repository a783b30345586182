"""What a user of the console changes of topics: settings, partitions, records, leaders, replicas."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from moldau.broker.console.topic_changes import choose_brokers
from tests.support.cluster import Cluster
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.node import Node, batch, serve_and
from tests.unit.broker.console.test_changes import WRITES, post


def hidden(html: str) -> dict[str, str]:
    """The fields of a preview's form."""
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says about changes."""
    made = [each for each in caplog.records if each.name == "moldau.console" and each.levelno == logging.WARNING]
    return [each.getMessage().partition(": ")[2] for each in made]


async def setting_of(topic: str, name: str) -> tuple[str, str] | None:
    settings = (await json_of(f"/topics/{topic}"))["settings"]
    return next(((each["value"], each["source"]) for each in settings if each["name"] == name), None)


def test_settings_and_partitions_of_a_topic_are_changed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("orders")
        assert "Change a setting" in (await get("/topics/orders"))[2]
        assert (await post("/topics/orders/setting", setting="retention.ms", value=5000))[0] == 303
        assert await setting_of("orders", "retention.ms") == ("5000", "topic")
        status, _, html = await post("/topics/orders/setting", setting="retention.ms", value="soon")
        assert status == 409 and "retention.ms" in html
        assert (await post("/topics/orders/setting", setting="retention.ms", remove="yes"))[0] == 303
        assert await setting_of("orders", "retention.ms") is None
        assert (await post("/topics/orders/partitions", count=4))[0] == 303
        assert (await json_of("/topics/orders"))["partitions"]["total"] == 4
        assert (await post("/topics/orders/partitions", count=2))[0] == 409
        assert (await post("/topics/nope/partitions", count=2))[0] == 404

    with caplog.at_level(logging.INFO, "moldau.console"):
        serve_and(story, **WRITES)
    assert lines(caplog) == [
        "retention.ms of topic orders set to 5000",
        "retention.ms of topic orders removed",
        "topic orders has 4 partitions, 1 before",
    ]


def test_a_record_is_written_where_its_key_belongs(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("orders", 7)
        form: dict[str, Any] = {"key": "foobar", "value": "paid", "headers": "trace: 17\nempty:"}
        status, fields, html = await post("/topics/orders/produce", **form)
        assert (status, fields.get("location")) == (303, "/topics/orders/records?partition=0&begin=offset&at=0"), html
        (record,) = (await json_of(fields["location"]))["records"]
        assert (record["key"]["text"], record["value"]["text"]) == ("foobar", "paid")
        assert record["headers"] == [["trace", "17"], ["empty", ""]]
        form = {"key": "ff00", "form": "hex", "value_null": "yes", "partition": 5}
        status, fields, _ = await post("/topics/orders/produce", **form)
        (record,) = (await json_of(fields["location"]))["records"]
        assert (record["key"]["text"], record["value"]["text"], record["partition"]) == ("ff 00", None, 5)
        assert (await post("/topics/orders/produce", key="xyz", form="hex"))[0] == 400
        assert (await post("/topics/orders/produce", value="v", partition=7))[0] == 404
        assert "Write a record" in (await get("/topics/orders/records"))[2]

    with caplog.at_level(logging.INFO, "moldau.console"):
        serve_and(story, **WRITES)
    assert lines(caplog) == [
        "a record written to orders-0 at offset 0",
        "a record written to orders-5 at offset 0",
    ]


def test_records_are_deleted_as_it_was_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 2)
        await client.produce("orders", batch("a", "b", "c"), partition=0)
        await client.produce("orders", batch("d"), partition=1)
        status, _, html = await post("/topics/orders/records/delete", partition=0, offset=2)
        assert status == 200 and "cannot be restored" in html
        shown = hidden(html)
        assert shown["before:0"] == "2" and "before:1" not in shown
        rows = (await json_of("/topics/orders"))["partitions"]["rows"]
        assert rows[0]["start_offset"] == 0, "a preview changes nothing"
        assert (await post("/topics/orders/records/delete", **shown))[0] == 303
        rows = (await json_of("/topics/orders"))["partitions"]["rows"]
        assert [each["start_offset"] for each in rows] == [2, 0]
        shown = hidden((await post("/topics/orders/records/delete"))[2])
        assert (shown["before:0"], shown["before:1"]) == ("3", "1")
        assert (await post("/topics/orders/records/delete", confirm="yes"))[0] == 400
        assert (await post("/topics/orders/records/delete", confirm="yes", **{"before:0": "99"}))[0] == 409

    with caplog.at_level(logging.INFO, "moldau.console"):
        serve_and(story, **WRITES)
    assert lines(caplog) == ["records of orders deleted before {0: 2} by partition"]


def test_without_the_setting_no_path_changes_a_topic() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("orders")
        for path in ("setting", "partitions", "produce", "records/delete", "elect", "move"):
            assert (await post(f"/topics/orders/{path}", count=2))[0] == 404, path
            assert (await post(f"/topics/orders/{path}", {"Origin": "http://evil.example"}))[0] == 404, path

    serve_and(story, **SETTINGS)


def test_partitions_move_to_the_brokers_that_were_shown_and_leaders_are_elected() -> None:
    properties = {**WRITES, "offsets_topic_num_partitions": 1}
    with Cluster(1, nodes=3, **properties) as cluster:

        async def story(cluster: Cluster) -> None:
            await cluster.settled()
            await cluster.create("orders", 2)
            before = [each["replicas"] for each in (await json_of("/topics/orders"))["partitions"]["rows"]]
            status, _, html = await post("/topics/orders/move", partition=0, brokers="2, 1")
            assert status == 200 and "To copy" in html
            shown = hidden(html)
            assert shown["move:0"] == "2,1"
            now = [each["replicas"] for each in (await json_of("/topics/orders"))["partitions"]["rows"]]
            assert now == before, "a preview changes nothing"
            assert (await post("/topics/orders/move", **shown))[0] == 303
            for _ in range(100):
                row = (await json_of("/topics/orders"))["partitions"]["rows"][0]
                if row["replicas"] == [2, 1] and not row["adding"] and not row["removing"]:
                    break
                await asyncio.sleep(1)
            assert row["replicas"] == [2, 1]
            assert (await post("/topics/orders/move", brokers="9"))[0] == 400
            assert (await post("/topics/orders/elect", kind="preferred"))[0] == 303
            await asyncio.sleep(1)  # The broker of the console hears of it with the metadata that it fetches.
            assert (await json_of("/topics/orders"))["partitions"]["rows"][0]["leader"] == 2
            assert (await post("/topics/orders/elect", kind="any"))[0] == 400
            assert "Nothing would change" in (await post("/topics/orders/elect", kind="unclean"))[2]

        cluster.live(story)


@pytest.mark.parametrize(
    ("index", "count", "expected"),
    [(0, 2, [4, 5]), (1, 2, [5, 6]), (2, 2, [6, 4]), (5, 3, [6, 4, 5]), (0, 9, [4, 5, 6])],
)
def test_partitions_are_spread_over_brokers(index: int, count: int, expected: list[int]) -> None:
    assert choose_brokers([4, 5, 6], index, count) == expected
