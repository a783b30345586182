"""The records of a topic in the console: what is found, how it is shown, and the live tail."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest

from moldau.broker.console import partitions, record_pages, record_reading
from moldau.broker.console.decoding.fields import field_test
from moldau.broker.console.decoding.texts import bytes_as_text, escape_unprintable
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import HTTP_PORT, SETTINGS, get, json_of
from tests.support.coordinators import until_coordinated
from tests.support.node import HOST, Node, batch, serve_and
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.support.transactional_producer import started

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\u202e\x1b[31m'


def values(page: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [each["value"]["text"] for each in page["records"]]


def test_records_are_found_by_offset_time_key_expression_and_from_the_end() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 2)
        for at in range(100):
            record = Record(key=f"k{at % 10}".encode(), value=f"v{at}".encode(), timestamp=1000 + at)
            await client.produce("orders", build_batch([record], codec=Codec.GZIP), partition=1)
        page = "/topics/orders/records"
        assert values(await json_of(f"{page}?limit=3")) == ["v99", "v98", "v97"]
        older = (await json_of(f"{page}?limit=3&partition=1"))["further"]
        assert values(await json_of(older)) == ["v96", "v95", "v94"]
        assert values(await json_of(f"{page}?limit=2&begin=oldest")) == ["v0", "v1"]
        assert values(await json_of(f"{page}?limit=2&begin=offset&at=42&partition=1")) == ["v42", "v43"]
        assert values(await json_of(f"{page}?limit=2&begin=time&at=1077")) == ["v77", "v78"]
        assert values(await json_of(f"{page}?limit=1&key=k3")) == ["v93"]
        assert values(await json_of(f"{page}?find=%5Ev.7%24&place=value&begin=oldest&limit=2")) == ["v17", "v27"]
        assert values(await json_of(f"{page}?key=nope")) == []
        assert (await get(f"{page}?find=("))[0] == 400
        later = (await json_of(f"{page}?begin=oldest&limit=60&partition=1"))["further"]
        assert values(await json_of(later))[0] == "v60"

    serve_and(story, **SETTINGS)


def test_a_read_committed_page_leaves_out_what_was_aborted_and_markers() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        for value, commits in ((b"a", True), (b"x", False), (b"c", True)):
            await producer.send("t", value)
            assert await producer.end(commits=commits) == ErrorCode.NONE
            await asyncio.sleep(0.1)
        page = "/topics/t/records?begin=oldest&partition=0"
        assert values(await json_of(page)) == ["a", "c"]
        shown = await json_of(f"{page}&isolation=read_uncommitted")
        assert [each["offset"] for each in shown["records"]] == [0, 1, 2, 3, 4, 5]
        assert "control ABORT" in shown["records"][3]["notes"]

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_records_of_an_internal_topic_are_decoded() -> None:
    async def story(node: Node) -> None:
        await started(node)
        page = await json_of("/topics/__transaction_state/records?isolation=read_uncommitted")
        assert page["records"][0]["value"]["form"] == "decoded"
        assert "payments" in page["records"][0]["key"]["text"]
        assert (await get("/topics/__transaction_state/records"))[0] == 200

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_hostile_values_are_shown_as_text() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        headers = ((HOSTILE, HOSTILE.encode()),)
        record = Record(key=HOSTILE.encode(), value=HOSTILE.encode(), timestamp=1, headers=headers)
        await client.produce("orders", build_batch([record]))
        for form in ("auto", "text", "json", "hex"):
            status, fields, html = await get(f"/topics/orders/records?form={form}&key=&find=script")
            assert status == 200 and "<script>alert" not in html and "<img" not in html
            assert "\u202e" not in html and "\x1b" not in html
            assert "script-src 'self'" in fields["content-security-policy"]
        assert "&lt;script&gt;" in (await get("/topics/orders/records?form=text"))[2]
        status, _, html = await get("/topics?q=%3Cscript%3Ealert(1)%3C/script%3E")
        assert status == 200 and "<script>alert" not in html
        status, _, html = await get("/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
        assert status == 404 and "<script>alert" not in html

    serve_and(story, **SETTINGS)


def test_hostile_ids_and_metadata_are_shown_as_text() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        group_id = "<img src=x onerror=alert(1)>\u202egroup\x1b"
        await until_coordinated(client.ask, group_id)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=group_id)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
        )
        await asyncio.sleep(1)
        assert (await client.ask(request, 8)).topics[0].partitions[0].error_code == 0
        for path in ("/groups", f"/groups/{quote(group_id, safe='')}", f"/groups?q={quote(group_id)}"):
            status, _, html = await get(path)
            assert status == 200 and "&lt;img" in html and "\\u202egroup\\x1b" in html, path
            assert "<img" not in html and "\u202e" not in html and "\x1b" not in html

    serve_and(story, **SETTINGS)


def test_numbers_that_no_offset_has_are_refused() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        long = "9" * 5000
        for path in (f"/topics/orders/{long}/producers", f"/brokers/{long}"):
            assert (await get(path))[0] == 404
        for query in (f"at={long}", f"partition={long}", "at=-1", "limit=1e9", "find=(%5CpL%7B1000%7D)%7B1000%7D"):
            assert (await get(f"/topics/orders/records?{query}"))[0] == 400, query
        await client.produce("orders", batch("a"))
        head = f"GET /topics/orders/records/tail HTTP/1.0\r\nHost: {HOST}\r\nLast-Event-ID: 0:{long}\r\n\r\n"
        reader, writer = await asyncio.open_connection(HOST, HTTP_PORT)
        writer.write(head.encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()

    serve_and(story, **SETTINGS)


async def events(path: str, count: int, last_id: str = "") -> list[tuple[str, list[str]]]:
    reader, writer = await asyncio.open_connection(HOST, HTTP_PORT)
    head = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n" + (f"Last-Event-ID: {last_id}\r\n" if last_id else "")
    writer.write(f"{head}\r\n".encode())
    found: list[tuple[str, list[str]]] = []
    event_id = ""
    while len(found) < count:
        line = (await reader.readline()).decode().strip()
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            records = json.loads(line.removeprefix("data: "))["records"]
            found.append((event_id, [each["value"]["text"] for each in records]))
    writer.close()
    return found


def test_a_live_tail_shows_new_records_and_resumes_where_it_was_left() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        await client.produce("orders", batch("before"))
        reading = asyncio.ensure_future(events("/topics/orders/records/tail", 1))
        await asyncio.sleep(1)
        await client.produce("orders", batch("first", "second"))
        ((event_id, seen),) = await reading
        assert (event_id, seen) == ("0:3", ["first", "second"])
        await client.produce("orders", batch("third"))
        assert await events("/topics/orders/records/tail", 1, event_id) == [("0:4", ["third"])]

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize("wanted", ["", "find=wanted", "key=k", "header=h%3Dv", "field=a%3D1"])
def test_a_tail_that_is_far_behind_skips_records_only_if_all_are_asked_for(wanted: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        found = Record(b"k", b'{"a":1,"b":"wanted"}', 1, headers=(("h", b"v"),))
        await client.produce("orders", build_batch([found] + [Record(None, b"x", 1)] * 1_100))
        ((_, seen),) = await events(f"/topics/orders/records/tail?{wanted}", 1, "0:0")
        assert any("wanted" in each for each in seen) == bool(wanted)

    serve_and(story, **SETTINGS)


async def tailed(path: str, count: int, last_id: str = "") -> list[dict[str, Any]]:
    """The data of the first events of a live tail."""
    reader, writer = await asyncio.open_connection(HOST, HTTP_PORT, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nLast-Event-ID: {last_id}\r\n\r\n".encode())
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = (await reader.readline()).decode()
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
    writer.close()
    return found


def test_a_tail_counts_the_records_that_it_leaves_out_of_all_partitions() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 2)
        for partition in range(2):
            await client.produce("orders", batch(*map(str, range(80))), partition=partition)
        (event,) = await tailed("/topics/orders/records/tail", 1, "0:0,1:0")
        assert (len(event["records"]), event["left_out"], event["errors"]) == (100, 60, [])

    serve_and(story, **SETTINGS)


def test_a_tail_follows_a_partition_whose_leader_answers_late(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets_of, away = partitions.offsets_of, {("orders", 1)}

    async def answered(*given: Any) -> dict[tuple[str, int], int]:
        return {key: offset for key, offset in (await offsets_of(*given)).items() if key not in away}

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 2)
        for last_id, count, seen in (("", 3, ["new"]), ("1:0", 2, ["old", "new"])):
            reading = asyncio.ensure_future(tailed("/topics/orders/records/tail", count, last_id))
            await asyncio.sleep(3)
            if not last_id:
                await client.produce("orders", batch("old"), partition=1)
            away.clear()
            await asyncio.sleep(1)
            if not last_id:
                await client.produce("orders", batch("new"), partition=1)
            first, *others = await reading
            assert first == {"records": [], "left_out": 0, "errors": ["the leader of orders-1 does not answer"]}
            told = [each["value"]["text"] for event in others for each in event["records"]]
            assert (told, others[0]["errors"]) == (seen, [])
            away.add(("orders", 1))

    monkeypatch.setattr(record_pages, "offsets_of", answered)
    serve_and(story, **SETTINGS)


def test_a_tail_that_resumes_at_deleted_records_goes_on_behind_them() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        await client.produce("orders", batch("a", "b", "c"))
        wish = DeleteRecordsPartition(partition_index=0, offset=2)
        topic = DeleteRecordsTopic(name="orders", partitions=[wish])
        await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
        first, second = await tailed("/topics/orders/records/tail", 2, "0:0")
        assert (first["records"], first["left_out"]) == ([], 2)
        assert [each["value"]["text"] for each in second["records"]] == ["c"]

    serve_and(story, **SETTINGS)


def test_a_page_and_a_tail_say_which_partitions_they_leave_out() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", 65)
        said = ["partitions 0 to 63 of 65 are read: others by their number"]
        assert (await json_of("/topics/orders/records"))["errors"] == said
        assert (await json_of("/topics/orders/records?partition=64"))["errors"] == []
        (event,) = await tailed("/topics/orders/records/tail", 1)
        assert event["errors"] == said

    serve_and(story, **SETTINGS)


def test_a_page_of_a_user_that_is_throttled_says_so() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        await client.produce("orders", batch("x" * 3_000))
        await client.set_quota("consumer_byte_rate", 1_000, user=None)
        pages = [await json_of("/topics/orders/records") for _ in range(5)]
        assert (len(pages[0]["records"]), pages[0]["errors"]) == (1, [])
        assert pages[-1]["errors"] == ["orders-0: THROTTLING_QUOTA_EXCEEDED"]

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize(
    ("data", "form", "text", "shown_as"),
    [
        (b"plain", "auto", "plain", "text"),
        (b'{"a":1}', "auto", '{\n "a": 1\n}', "json"),
        (b"{broken", "auto", "{broken", "text"),
        (b"\xff\x00", "auto", "ff 00", "hex"),
        (b"\x00", "text", "\\x00", "text"),
        (b"a", "hex", "61", "hex"),
        (None, "auto", None, "text"),
        ("ž".encode(), "auto", "ž", "text"),
    ],
)
def test_bytes_are_shown_in_the_form_that_fits(data: bytes | None, form: str, text: str | None, shown_as: str) -> None:
    shown = bytes_as_text(data, form, 100)
    assert (shown.text, shown.form) == (text, shown_as)


def test_numbers_are_shown_and_found_with_their_digits() -> None:
    data = b'{"a": 12345678901234567.89, "b": [1.10, 1E+400]}'
    assert bytes_as_text(data, "auto", 100).text == '{\n "a": 12345678901234567.89,\n "b": [\n  1.10,\n  1E+400\n ]\n}'
    for text in ("12345678901234567.89", "1.2345678901234568e+16"):
        assert field_test("a", text)(data)
    assert field_test("b", "[1.1, Infinity]")(data) and not field_test("a", "12345678901234567.9")(data)


def test_a_long_value_is_cut_and_says_its_size() -> None:
    shown = bytes_as_text(b"x" * 5000, "auto", 100)
    assert (len(shown.text or ""), shown.size, shown.is_cut) == (100, 5000, True)


def test_what_a_browser_acts_on_is_an_escape() -> None:
    assert escape_unprintable("a\u202eb\x1b") == "a\\u202eb\\x1b"


def test_the_newest_records_are_shown_where_not_all_fit_into_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        for at in range(60):
            record = Record(value=b"%d " % at + bytes([97]) * 20_000, timestamp=1000 + at)
            await client.produce("orders", build_batch([record]))
        page = await json_of("/topics/orders/records")
        shown = [int(each.split()[0]) for each in values(page)]
        assert shown == list(range(59, 59 - len(shown), -1)) and 8 <= len(shown) < 50
        assert not page["is_complete"]
        older = values(await json_of("/topics/orders/records?partition=0"))
        further = (await json_of("/topics/orders/records?partition=0"))["further"]
        assert int(values(await json_of(further))[0].split()[0]) == 59 - len(older)

    monkeypatch.setattr(record_pages, "PAGE_BYTES", 400_000)
    monkeypatch.setattr(record_reading, "PIECE_SIZE", 20_000)
    serve_and(story, **SETTINGS)
