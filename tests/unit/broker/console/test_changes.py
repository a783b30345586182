"""What a user of the console changes, and what is refused."""

from __future__ import annotations

import logging
import re
from urllib.parse import urlencode

import pytest

from moldau.broker.console import changes
from moldau.broker.console.change import PARTITIONS_MAX
from moldau.broker.console.page import Refusal
from moldau.broker.console.service import FIELDS_MAX
from moldau.broker.console.topic_changes import leader_of
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, Topic
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import HTTP_PORT, SETTINGS, get, json_of, send
from tests.support.node import HOST, Node, batch, produce_request, serve_and
from tests.support.transactional_producer import GROUP, started
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.unit.broker.console.test_lag import commit

WRITES = {**SETTINGS, "moldau_console_writes": "true"}
HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{HOST}:{HTTP_PORT}"}


async def post(path: str, headers: dict[str, str] | None = None, /, **form: object) -> tuple[int, dict[str, str], str]:
    body = urlencode({"form_key": "", **form}).encode()
    return await send("POST", path, body, {**HEADERS, **(headers or {})})


def test_without_the_setting_nothing_can_be_changed() -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("orders")
        assert (await post("/topics", name="more"))[0] == 405
        assert (await post("/topics/orders/delete", confirm="orders"))[0] == 404
        assert "<details>" not in (await get("/topics"))[2] + (await get("/topics/orders"))[2]

    serve_and(story, **SETTINGS)


def test_a_topic_is_created_and_deleted_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        assert "Create a topic" in (await get("/topics"))[2]
        status, fields, _ = await post("/topics", name="orders", partitions=3, replicas=1)
        assert (status, fields["location"]) == (303, "/topics/orders")
        assert (await json_of("/topics/orders"))["partitions"]["total"] == 3
        status, _, html = await post("/topics", name="orders")
        assert status == 409 and "already exists" in html
        assert (await post("/topics", name="more", partitions="x"))[0] == 400
        assert (await post("/topics", name="more", settings="compact"))[0] == 400
        settings = "retention.ms = 1000\r\n\r\ncleanup.policy=compact,delete"
        assert (await post("/topics", name="more", settings=settings))[0] == 303
        told = {each["name"]: each["value"] for each in (await json_of("/topics/more"))["settings"]}
        assert told.items() >= {"retention.ms": "1000", "cleanup.policy": "compact,delete"}.items()
        assert (await post("/topics/orders/delete", confirm="order"))[0] == 400
        assert (await post("/topics/orders/delete", confirm="orders"))[0] == 303
        assert (await get("/topics/orders"))[0] == 404

    with caplog.at_level(logging.WARNING, "moldau.console"):
        serve_and(story, **WRITES)
    made = [each.getMessage() for each in caplog.records if each.name == "moldau.console"]
    assert len(made) == 3
    assert re.fullmatch(r"User:ANONYMOUS at \S+: topic orders created", made[0])
    assert re.search(r"topic orders with id [\w-]{22} deleted$", made[2])


def test_a_foreign_origin_changes_nothing() -> None:
    async def story(node: Node) -> None:
        for origin in ("http://evil.example", "null", f"https://{HOST}", ""):
            assert (await post("/topics", {"Origin": origin}, name="orders"))[0] == 403, origin
        assert (await post("/topics", {"Sec-Fetch-Site": "same-site"}, name="orders"))[0] == 403
        assert (await post("/topics", {"Content-Type": "text/plain"}, name="orders"))[0] == 415
        assert (await post("/topics", {"Host": "evil.example", "Origin": "http://evil.example"}, name="orders"))[
            0
        ] == 421
        assert (await json_of("/topics"))["topics"]["total"] == 0

    serve_and(story, **WRITES)


@pytest.mark.parametrize(
    ("to", "at", "expected"),
    [("earliest", "", 0), ("latest", "", 4), ("offset", 3, 3), ("offset", 99, 4), ("shift", -1, 1), ("time", 1002, 2)],
)
def test_offsets_are_changed_as_they_were_shown(to: str, at: object, expected: int) -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        await client.produce("t", batch("a", "b", "c", "d"))
        await commit(client, 2)
        status, _, html = await post(f"/groups/{GROUP}/offsets", to=to, at=at)
        assert status == 200
        fields = dict(re.findall(r'name="(offset:[^"]+)" value="(\d+)"', html))
        assert fields == {"offset:0:t": str(expected)}
        (partition,) = (await json_of(f"/groups/{GROUP}"))["partitions"]
        assert partition["committed"] == 2, "a preview changes nothing"
        await client.produce("t", build_batch([Record(value=b"later", timestamp=2000)]))
        assert (await post(f"/groups/{GROUP}/offsets", confirm="yes", **fields))[0] == 303
        (partition,) = (await json_of(f"/groups/{GROUP}"))["partitions"]
        assert partition["committed"] == expected
        assert (await post(f"/groups/{GROUP}/offsets", confirm="yes"))[0] == 400

    serve_and(story, **WRITES, **TRANSACTIONS)


def test_offsets_of_too_many_partitions_are_refused_before_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of the preview has a field for each, and a form with more fields is refused as none."""

    async def story(node: Node) -> None:
        client = (await started(node)).client
        await client.produce("t", batch("a", "b"))
        await commit(client, 2)
        monkeypatch.setattr(changes, "PARTITIONS_MAX", 0)
        status, _, html = await post(f"/groups/{GROUP}/offsets", to="earliest")
        assert status == 400 and "offsets of more than 0 partitions: name a topic" in html
        assert PARTITIONS_MAX < FIELDS_MAX

    serve_and(story, **WRITES, **TRANSACTIONS)


def test_a_partition_without_a_leader_is_named() -> None:
    partition = PartitionRegistration((1,), (1,), NO_LEADER, 0, 0)
    topic = Topic("t", bytes(16), {0: partition})
    for index, text in ((0, "t-0 has no leader"), (1, "topic t has no partition 1")):
        with pytest.raises(Refusal, match=text):
            leader_of(topic, index)


def test_a_transaction_that_hangs_is_found_and_ended() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        orphan = build_batch(
            [Record(value=b"lost", timestamp=node.broker.environment.wall_ms())],
            producer_id=4_000,
            producer_epoch=3,
            base_sequence=0,
            is_transactional=True,
        )
        # No coordinator verifies the partition, as before KIP-890: so the transaction belongs to none.
        request = produce_request("t", orphan)
        request.transactional_id = "orphan"
        reply = await client.ask(request, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        await client.produce("t", batch("behind"))
        page = "/topics/t/records?partition=0"
        assert (await json_of(page))["records"] == []
        (hanging,) = (await json_of("/transactions"))["hanging"]
        assert (hanging["topic"], hanging["first_offset"], hanging["producer_id"]) == ("t", 0, 4_000)
        assert "Abort it" in (await get("/transactions"))[2]
        names = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch")
        status, _, html = await post("/transactions/end", **{name: hanging[name] for name in names})
        assert status == 303, html
        assert (await json_of("/transactions"))["hanging"] == []
        assert [each["value"]["text"] for each in (await json_of(page))["records"]] == ["behind"]

    serve_and(story, **WRITES, **TRANSACTIONS, transaction_partition_verification_enable="false")


def test_browsers_are_told_to_name_the_origin_of_a_form() -> None:
    """Under `no-referrer` they send `Origin: null`, which is refused."""

    async def story(node: Node) -> None:
        assert (await get("/topics"))[1]["referrer-policy"] == "same-origin"

    serve_and(story, **WRITES)
