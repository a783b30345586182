"""The pages of the console on a whole simulated node: as HTML for a browser, as JSON for a program."""

from __future__ import annotations

import asyncio
import re

from moldau.broker.console.service import FILES, PAGES
from moldau.kraft.features import METADATA_VERSION_NAMES
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.consumer_group_heartbeat import TopicPartitions as Owned
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.partition_metadata import parse_uuid
from tests.support.cluster import Cluster
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.coordinators import until_coordinated
from tests.support.node import Node, batch, serve_and
from tests.support.scram_login import password_of
from tests.support.transactional_producer import GROUP, started
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.unit.broker.console.test_lag import commit


def test_the_cluster_page_tells_brokers_quorum_and_health() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 3)
        page = await json_of("/")
        assert page["counts"]["topics"] == 1 and page["counts"]["partitions"] == 3
        assert page["problems"] == []
        (broker,) = page["brokers"]
        assert (broker["id"], broker["state"], broker["leaders"]) == (1, "active", 3)
        assert page["quorum"]["leader_id"] == 1
        status, headers, html = await get("/")
        assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
        assert "All brokers are active" in html

    serve_and(story, **SETTINGS)


def test_topics_come_in_parts_in_the_order_of_their_names() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for number in range(60):
            await client.create(f"topic-{number:02}")
        page = await json_of("/topics")
        assert page["topics"]["total"] == 60
        assert [each["name"] for each in page["topics"]["rows"]] == [f"topic-{number:02}" for number in range(50)]
        page = await json_of(page["topics"]["next_page"])
        assert [each["name"] for each in page["topics"]["rows"]] == [f"topic-{number:02}" for number in range(50, 60)]
        assert page["topics"]["next_page"] is None
        page = await json_of("/topics?q=C-1")
        assert page["topics"]["total"] == 10

    serve_and(story, **SETTINGS)


def test_a_topic_tells_offsets_sizes_and_settings_with_their_sources() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 2, retention_ms=1000)
        records = batch("a", "b")
        await client.produce("orders", records, partition=1)
        page = await json_of("/topics/orders")
        assert parse_uuid(page["id"]) == node.broker.cluster.image.topics.ids["orders"]
        first, second = page["partitions"]["rows"]
        assert (first["start_offset"], first["high_watermark"]) == (0, 0)
        assert (second["stable_offset"], second["high_watermark"], second["bytes"]) == (2, 2, len(records))
        settings = {each["name"]: (each["value"], each["source"]) for each in page["settings"]}
        assert settings["retention.ms"] == ("1000", "topic")
        assert len(settings) < 5
        assert len((await json_of("/topics/orders?shows=all"))["settings"]) > 20
        status, _, html = await get("/topics/orders")
        assert status == 200 and "retention.ms" in html

    serve_and(story, **SETTINGS)


def test_a_page_that_does_not_exist_says_so_in_both_forms() -> None:
    async def story(node: Node) -> None:
        assert (await get("/topics/nope"))[0] == 404
        status, _, body = await get("/groups/nope?format=json")
        assert status == 404 and "there is no group nope" in body
        assert (await get("/topics?shows=all"))[0] == 200
        status, _, body = await get("/topics?internal=maybe")
        assert status == 400 and "must be one of yes, no" in body

    serve_and(story, **SETTINGS)


def test_a_consumer_group_has_members_assignments_and_a_lag() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("orders")
        await client.produce("orders", batch("a", "b", "c"))
        await until_coordinated(client.ask, "readers")
        joined = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id="member-1",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        await asyncio.sleep(1)
        reply = await client.ask(joined, 1)
        assert reply.error_code == 0, reply
        owns = [Owned(topic_id=topic_id, partitions=[0])]
        await client.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="readers", member_id="member-1", member_epoch=reply.member_epoch, topic_partitions=owns
            ),
            1,
        )
        (row,) = (await json_of("/groups"))["groups"]["rows"]
        assert (row["id"], row["kind"], row["records"]) == ("readers", "consumer", None)
        page = await json_of("/groups/readers")
        (member,) = page["members"]
        assert (member["id"], member["assigned"]) == ("member-1", {"orders": [0]})
        (partition,) = page["partitions"]
        assert (partition["committed"], partition["end"]) == (None, 3)
        assert (await get("/groups/readers"))[0] == 200

    serve_and(story, **SETTINGS)


def test_every_page_is_html_that_names_its_cells_and_json() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        await client.ask(password_of("alice", "alice-secret"), 0)
        await client.set_quota("producer_byte_rate", 1000.0, user="alice")
        await client.produce("t", batch("a"))
        names = {"name": "t", "id": "1", "partition": "0"}
        for page in PAGES:
            path = re.sub(r"{(\w+)}", lambda found: names[found[1]], page.path)
            if page.path == "/groups/{id}":
                continue  # The tests of groups and lags have some.
            status, fields, html = await get(path)
            assert status == 200, (path, html)
            assert fields["content-type"] == "text/html; charset=utf-8"
            assert html.count("<table") == html.count("</table>") == html.count('role="region"'), path
            assert "<h1>" in html and 'lang="en"' in html and "default-src 'none'" in fields["content-security-policy"]
            assert "None" not in html.replace('<p class="good">None', ""), path
            assert await json_of(path)
        for name, content_type in FILES.items():
            status, fields, body = await get(f"/static/{name}")
            assert (status, fields["content-type"]) == (200, content_type)
            assert len(body) < 20_000

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_brokers_of_one_machine_are_shown_as_one() -> None:
    with Cluster(1, nodes=3, **SETTINGS) as cluster:
        for node in cluster.nodes.values():
            node.properties |= {"broker.rack": "machine-a" if node.id < 3 else "machine-b"}

        async def story(cluster: Cluster) -> None:
            await cluster.settled()
            await cluster.create("orders", 6, 2)
            await asyncio.sleep(1)
            first, second = (await json_of("/"))["racks"]
            assert (first["rack"], first["brokers"], first["active"]) == ("machine-a", 2, 2)
            assert (second["rack"], second["brokers"], second["replicas"]) == ("machine-b", 1, 6)
            assert first["replicas"] == 6 and first["leaders"] + second["leaders"] == 6
            assert "machine-b" in (await get("/"))[2]

        cluster.live(story)


def test_a_page_about_another_broker_asks_it() -> None:
    properties = {**SETTINGS, "offsets_topic_num_partitions": 6}
    with Cluster(1, nodes=3, **properties) as cluster:

        async def story(cluster: Cluster) -> None:
            await cluster.settled()
            await cluster.create("orders", 6)
            for index in range(6):
                leader = await cluster.led("orders", index)
                client = await cluster.connect(leader)
                assert (await client.produce("orders", batch("a", "b"), partition=index)).error_code == 0
            page = await json_of("/topics/orders")
            assert [each["high_watermark"] for each in page["partitions"]["rows"]] == [2] * 6
            assert all(each["bytes"] for each in page["partitions"]["rows"])
            assert len((await json_of("/topics/orders/records"))["records"]) == 12
            assert len((await json_of("/directories"))["brokers"]) == 3
            assert (await json_of("/brokers/3?shows=all"))["settings"]
            assert (await json_of("/"))["racks"] == [], "no rack has several brokers"
            lost = next(each for each in cluster.nodes.values() if each.id != 1)
            lost.crash()
            page = await json_of("/topics/orders")
            rows = page["partitions"]["rows"]
            assert all(each["high_watermark"] == 2 or each["leader"] == lost.id for each in rows)

        cluster.live(story)


def test_a_topic_shows_how_much_is_written_by_the_timestamps_of_the_last_minute() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 2)
        now_ms = node.broker.environment.wall_ms()
        old = [Record(value=b"v", timestamp=now_ms - 300_000)] * 7
        new = [Record(value=b"v", timestamp=now_ms)] * 30
        batches = [build_batch(old), build_batch(new)]
        for each in batches:
            await client.produce("orders", each)
        page = await json_of("/topics/orders")
        assert [each["records_a_second"] for each in page["partitions"]["rows"]] == [0.5, 0]
        assert (page["records_a_second"], page["is_tiered"]) == (0.5, False)
        size = sum(map(len, batches))
        assert page["bytes_a_second"] == round(0.5 * size / 37, 2)
        html = (await get("/topics/orders"))[2]
        assert f"0.5 records/s, about {round(0.5 * size / 37)} bytes/s" in html

    serve_and(story, **SETTINGS)


def test_topics_are_sorted_by_size_and_by_records_and_tell_their_policy() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name, count in (("a", 1), ("b", 3), ("c", 2)):
            await client.create(name)
            await client.produce(name, batch(*["x" * 100] * count))
        for sort in ("size", "records"):
            rows = (await json_of(f"/topics?sort={sort}&internal=no"))["topics"]["rows"]
            assert [each["name"] for each in rows] == ["b", "c", "a"], sort
            assert [(each["offsets"], each["policy"]) for each in rows] == [(3, "delete"), (2, "delete"), (1, "delete")]
        assert [each["name"] for each in (await json_of("/topics?internal=no"))["topics"]["rows"]] == ["a", "b", "c"]

    serve_and(story, **SETTINGS)


def test_a_page_says_which_cluster_it_shows_and_as_of_when_and_an_empty_list_the_next_step() -> None:
    async def story(node: Node) -> None:
        html = (await get("/topics"))[2]
        assert "<title>Topics · shop · Moldau</title>" in html and "<strong>Moldau</strong> shop" in html
        assert "As of " in html and '<a href="/topics">Refresh</a>' in html
        assert "moldau topic create NAME" in html
        assert "moldau consume TOPIC --group NAME" in (await get("/groups"))[2]
        page = await json_of("/")
        assert page["release"] == METADATA_VERSION_NAMES[node.broker.image.features.metadata_version]
        assert f"Metadata version {page['release']}." in (await get("/"))[2]

    serve_and(story, **SETTINGS, moldau_console_name="shop")


def test_each_empty_list_says_what_it_would_hold_or_why_nothing_is_shown() -> None:
    empty = {
        "/topics": "There are no topics. <code>moldau topic create NAME</code> makes one",
        "/topics?q=x": "No topic holds that text.",
        "/groups": "There are no groups. One begins when",
        "/groups?kind=share": "No group matches.",
        "/transactions": "There are no transactional ids. A producer with <code>transactional.id</code> makes one",
        "/transactions?q=x": "No transactional id matches.",
        "/permissions": "There are no users. <code>moldau user create NAME</code> makes one.",
        "/permissions?q=x": "No user matches.",
    }
    of_permissions = (
        "The cluster has no authorizer: authorizer.class.name is not set",
        "There are no quotas. <code>moldau quota set",
        "Only users that have logged in, and not by a token, see them.",
    )

    async def story(node: Node) -> None:
        for path, said in empty.items():
            status, _, text = await get(path)
            assert status == 200 and said in text, path
            assert "<tbody>\n</tbody>" not in text, "a table without rows says nothing"
        _, _, text = await get("/permissions")
        assert all(said in text for said in of_permissions)

    serve_and(story, **SETTINGS)


def test_a_topic_names_the_groups_that_have_an_offset_in_it() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("t", "other"):
            await client.create(name)
            await client.produce(name, batch("a", "b", "c"))
        await until_coordinated(client.ask, GROUP)
        await commit(client, 1)
        assert (await json_of("/topics/other"))["groups"]["rows"] == []
        (row,) = (await json_of("/topics/t"))["groups"]["rows"]
        assert row == {"id": GROUP, "kind": "classic", "state": "Empty", "behind": 2}
        assert f'<a href="/groups/{GROUP}">' in (await get("/topics/t"))[2]

    serve_and(story, **SETTINGS, **TRANSACTIONS)
