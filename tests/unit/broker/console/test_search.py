"""The search through a whole topic: what it finds, in which order, what it leaves out, and that it ends."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.console.decoding import work
from moldau.broker.console.decoding.prefilter import ANYWHERE, ByteSearch, required_bytes_of
from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, SelectedRecords, select_records
from moldau.broker.console.searching import search, stretches
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.memory_files import MemoryFiles
from moldau.tables.values.masks import Masks, mask_rule
from tests.support.console_client import HTTP_PORT, SETTINGS, get
from tests.support.node import HOST, Node, serve_and
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.support.transactional_producer import started

SMALL: Final[dict[str, Any]] = {"log_roll_ms": "40", "log_index_interval_bytes": "100", "log_retention_ms": "-1"}
"""Several segments, by the times of the records, with an entry in the index for each batch."""


async def found(path: str) -> list[dict[str, Any]]:
    """The events of a search, until it has ended."""
    status, _, text = await get(path)
    assert status == 200, text
    lines = [each for each in text.splitlines() if each.startswith("data: ")]
    return [json.loads(each.removeprefix("data: ")) for each in lines]


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [each["value"]["text"] for event in events for each in event["records"]]


def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many stretches in a small log."""
    monkeypatch.setattr(stretches, "STRETCH_MAX", 300)
    monkeypatch.setattr(search, "STRETCH_MAX", 300)
    monkeypatch.setattr(search, "STRETCH_MIN", 300)


async def fill(node: Node) -> None:
    """Two partitions, of which the times interleave: value i has the time 1000 + i, and is in partition i % 2."""
    client = await node.connect()
    await client.create("orders", 2)
    codecs = (Codec.NONE, Codec.GZIP, Codec.NONE, Codec.LZ4)
    for at in range(200):
        headers = (("region", b"eu" if at % 50 == 7 else b"us"),)
        value = json.dumps({"n": at, "customer": {"id": at % 40, "name": f"Anna {at}"}, "v": f"v{at}"}).encode()
        record = Record(key=f"k{at % 40}".encode(), value=value, timestamp=1000 + at, headers=headers)
        await client.produce("orders", build_batch([record], codec=codecs[at % 4]), partition=at % 2)


NEWEST = [183, 143, 103, 63, 23]


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [json.loads(each)["n"] for each in texts(events)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("key=k23", NEWEST),
        ("field=customer.id%3D23", NEWEST),
        ("field=customer.id%3D23&begin=oldest", NEWEST[::-1]),
        ("field=customer.name%3DAnna+42", [42]),
        ("header=region%3Deu", [157, 107, 57, 7]),
        ("header=region%3Deu&limit=2", [157, 107]),
        ("header=region%3Deu&limit=2&begin=oldest", [7, 57]),
        ("find=Anna+17", [179, 178, 177, 176, 175, 174, 173, 172, 171, 170, 17]),
        ("find=Anna.17%5C%22", [17]),
        ("key=k23&since=1050&until=1143", [103, 63]),
        ("key=k23&since=1970-01-01T00:00:01.050&until=1970-01-01T00:00:01.144", [143, 103, 63]),
        ("key=k23&partition=0", []),
        ("key=k23&header=region%3Deu", []),
        ("key=k7&header=region%3Deu&field=v%3Dv7", [7]),
        ("field=missing%3D1", []),
        ("since=1199", [199]),
        ("since=5000", []),
    ],
)
def test_records_are_found_in_files_of_any_codec(
    monkeypatch: pytest.MonkeyPatch, query: str, expected: list[int]
) -> None:
    small_stretches(monkeypatch)

    async def story(node: Node) -> None:
        await fill(node)
        events = await found(f"/topics/orders/records/search?{query}")
        assert sorted(numbers(events)) == sorted(expected)
        last = events[-1]
        assert last["end"] and not last["errors"]
        if "limit" not in query:
            assert last["offsets"] == last["of_offsets"]
            assert last["end"] == search.END_WHOLE
        else:
            assert last["end"] == search.END_FULL

    serve_and(story, **SETTINGS, **SMALL)


def test_what_is_found_comes_in_the_order_of_time_over_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stretches(monkeypatch)

    async def story(node: Node) -> None:
        await fill(node)
        events = await found("/topics/orders/records/search?limit=10")
        assert sorted(numbers(events), reverse=True)[:10] == list(range(199, 189, -1))
        oldest = await found("/topics/orders/records/search?limit=10&begin=oldest")
        assert sorted(numbers(oldest))[:10] == list(range(10))
        assert events[-1]["end"] == search.END_FULL
        assert events[-1]["offsets"] < 100, "the search ends long before the whole topic"

    serve_and(story, **SETTINGS, **SMALL)


def test_aborted_records_and_markers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stretches(monkeypatch)

    async def story(node: Node) -> None:
        producer = await started(node)
        for value, commits in ((b"a1", True), (b"a2", False), (b"a3", True)):
            await producer.send("t", value)
            assert await producer.end(commits=commits) == ErrorCode.NONE
            await asyncio.sleep(0.1)
        path = "/topics/t/records/search?find=a&partition=0"
        assert texts(await found(path)) == ["a3", "a1"]
        assert texts(await found(f"{path}&begin=oldest")) == ["a1", "a3"]
        uncommitted = texts(await found(f"{path}&isolation=read_uncommitted"))
        assert [each for each in uncommitted if each.startswith("a")] == ["a3", "a2", "a1"]

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_a_parameter_that_is_misspelled_is_refused() -> None:
    async def story(node: Node) -> None:
        await fill(node)
        refused = {"feild=customer.id%3D23": "'feild' here: did you mean field?", "in=key": "'in' here: did you mean "}
        for query, said in refused.items():
            status, _, text = await get(f"/topics/orders/records/search?{query}")
            assert status == 400 and said in json.loads(text)["error"]
        page = await get(
            "/topics/orders/records?key=k23&place=any&isolation=read_committed&form=auto&at=&since=&limit=7"
        )
        (link,) = re.findall(r'"(/topics/orders/records/search[^"]*)"', page[2])[:1]
        assert len(numbers(await found(link.replace("&amp;", "&")))) == 5, "the page's own parameters are known"

    serve_and(story, **SETTINGS, **SMALL)


def test_masked_parts_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stretches(monkeypatch)

    async def story(node: Node) -> None:
        await fill(node)
        path = "/topics/orders/records/search"
        assert texts(await found(f"{path}?field=customer.id%3D23")) == []
        assert len(texts(await found(f"{path}?field=customer.id%3D***&limit=500"))) == 200
        assert len(texts(await found(f"{path}?key=k23"))) == 5
        assert "Anna 23" not in "".join(texts(await found(f"{path}?key=k23")))

    serve_and(story, **SETTINGS, **SMALL, moldau_console_masks="orders:value.customer.id,orders:value.customer.name")


def test_a_file_that_was_replaced_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stretches(monkeypatch)
    places = []
    true_place = stretches._place

    def place(*given: Any) -> Any:
        made = true_place(*given)
        places.append(made)
        return made._replace(inode=-1) if len(places) % 2 else made

    monkeypatch.setattr(stretches, "_place", place)

    async def story(node: Node) -> None:
        await fill(node)
        events = await found("/topics/orders/records/search?key=k23")
        assert sorted(numbers(events)) == sorted(NEWEST) and not events[-1]["errors"]

    serve_and(story, **SETTINGS, **SMALL)


def test_a_file_that_is_gone_ends_the_partition_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    true_place = stretches._place
    monkeypatch.setattr(stretches, "_place", lambda *given: true_place(*given)._replace(path="/data/nothing.log"))

    async def story(node: Node) -> None:
        await fill(node)
        events = await found("/topics/orders/records/search?key=k23&partition=1")
        assert events[-1]["records"] == [] and events[-1]["end"]
        (error,) = events[-1]["errors"]
        assert error.startswith("orders-1, from offset ") and "cannot be read" in error

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize("query", ["field=customer", "since=noon", "find=(", "partition=9", "limit=501"])
def test_what_means_nothing_is_refused(query: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        status, _, text = await get(f"/topics/orders/records/search?{query}")
        assert status in (400, 404) and json.loads(text)["error"]

    serve_and(story, **SETTINGS)


def test_a_search_ends_when_its_client_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stretches(monkeypatch)
    looks = 0
    true_place = stretches._place

    def place(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return true_place(*given)

    monkeypatch.setattr(stretches, "_place", place)

    async def story(node: Node) -> None:
        await fill(node)
        reader, writer = await asyncio.open_connection(HOST, HTTP_PORT)
        path = "/topics/orders/records/search?field=n%3D-1"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{HTTP_PORT}\r\n\r\n".encode())
        await reader.readuntil(b"data: ")
        writer.close()
        await asyncio.sleep(0.5)
        seen = looks
        await asyncio.sleep(60)
        assert looks == seen < 200

    serve_and(story, **SETTINGS, **SMALL)


def test_a_search_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stretches(monkeypatch)
    monkeypatch.setattr(search, "SEARCH_MS", -1)

    async def story(node: Node) -> None:
        await fill(node)
        events = await found("/topics/orders/records/search?key=k23")
        assert events[-1]["end"] == search.END_LATE
        assert events[-1]["offsets"] < events[-1]["of_offsets"] == 200

    serve_and(story, **SETTINGS, **SMALL)


# The signs

KEYS = st.sampled_from([b"", b"k", b"k1", b"\xff", "ü".encode(), b"a: b"])
TEXTS = st.sampled_from(
    ["", "x", "7", "7.0", "70", "true", "null", "Zoë", "a/b", 'q"q', "a-b c", "\ufffd", "1e3", "{}"]
)
VALUES = st.one_of(
    st.none(),
    st.sampled_from([b"", b"x", b'{"a": {"b": "\\u0078"}}', b"nonsense", "Zoë".encode(), b"\xff\xfe"]),
    st.tuples(st.one_of(TEXTS, st.integers(-2, 70), st.floats(0, 1e4), st.booleans(), st.none()), st.booleans()).map(
        lambda made: json.dumps({"a": {"b": made[0]}, "c": 1}, ensure_ascii=made[1]).encode()
    ),
)
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "Zoë", "a"]), st.one_of(st.none(), KEYS)), max_size=2).map(tuple)
RECORD = st.builds(
    Record, key=st.one_of(st.none(), KEYS), value=VALUES, timestamp=st.just(1), headers=HEADERS, offset=st.just(-1)
)
RECORDS = st.lists(RECORD, min_size=1, max_size=4)


def wanted_of(key: bytes | None, header: tuple[str, bytes | None] | None, text: str | None, find: str) -> RecordFilter:
    field = None if text is None else ("a.b", text)
    found = find.join(ANYWHERE) if find else ""
    return RecordFilter(True, key, found, "any", "auto", RecordKind.PLAIN, False, Masks((), "t"), header, field)


@given(
    st.lists(st.tuples(RECORDS, st.sampled_from([Codec.NONE, Codec.GZIP])), min_size=1, max_size=4),
    st.builds(
        wanted_of,
        st.one_of(st.none(), KEYS),
        st.one_of(st.none(), st.tuples(st.sampled_from(["h", "Zoë"]), st.one_of(st.none(), KEYS))),
        st.one_of(st.none(), TEXTS),
        st.sampled_from(["", "x", "Zoë", "h: k", "7", " k1", "a: b", "k1|x"]),
    ),
)
@settings(max_examples=400, deadline=None)
def test_the_signs_hide_no_record(batches: list[tuple[list[Record], Codec]], wanted: RecordFilter) -> None:
    data, offset = b"", 0
    for records, codec in batches:
        data += build_batch(records, base_offset=offset, codec=codec)
        offset += len(records)
    piece = FetchedPiece(0, data, (), 0, offset, 100, 1 << 18, False)
    quick = select_records(piece, wanted, None)
    slow = _without_signs(piece, wanted)
    assert [each.offset for each in quick.records] == [each.offset for each in slow.records]
    assert quick.next_offset == slow.next_offset == offset


def _without_signs(piece: FetchedPiece, wanted: RecordFilter) -> SelectedRecords:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("moldau.broker.console.decoding.selection.required_bytes_of", lambda *_, **__: ())
        return select_records(piece, wanted, None)


@pytest.mark.parametrize("has_function", [True, False])
@given(st.lists(st.sampled_from([b"ab", b"a", b"\0", b"bab"])).map(b"".join), st.binary(max_size=3), st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_bytes_are_found_with_and_without_the_function_of_the_c_library(
    has_function: bool, data: bytes, sought: bytes, position: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if not has_function:
            patched.setattr("moldau.broker.console.decoding.prefilter._find_in_memory", lambda: None)
        for each in (sought, data[position : position + 4]):
            assert ByteSearch(data).find(each, position) == data.find(each, position)


def test_batches_without_a_sign_are_not_decoded() -> None:
    wanted = wanted_of(b"needle", None, None, "")
    assert required_bytes_of(wanted, has_schemas=False) == (b"needle",)
    records = [Record(key=b"hay", value=b"x" * 1000)] * 10
    data = b"".join(build_batch(records, base_offset=at * 10) for at in range(100))
    found = select_records(FetchedPiece(0, data, (), 0, 1000, 10, 1 << 18, False), wanted, None)
    assert (found.records, found.next_offset, found.expanded) == ([], 1000, 0)


def test_signs_are_not_used_for_what_is_masked_or_framed() -> None:
    wanted = wanted_of(b"needle", None, None, "")
    assert required_bytes_of(wanted, has_schemas=True) == ()
    masked = RecordFilter(
        True, b"k", "", "any", "auto", RecordKind.PLAIN, False, Masks((mask_rule("t:value.secret"),), "t")
    )
    assert required_bytes_of(masked, has_schemas=False) == ()


MASKS = ["value.a.b", "value.a", "value.c", "value.*", "value.a.b.d", "value.x", "value", "key", "headers.h", "headers"]


@given(
    RECORDS,
    st.builds(
        wanted_of,
        st.one_of(st.none(), KEYS),
        st.one_of(st.none(), st.tuples(st.sampled_from(["h", "Zoë"]), st.one_of(st.none(), KEYS))),
        st.one_of(st.none(), TEXTS, st.just("***")),
        st.sampled_from(["", "x", "Zoë"]),
    ),
    st.lists(st.sampled_from(MASKS), min_size=1, max_size=2),
)
@settings(max_examples=400, deadline=None)
def test_what_is_found_of_masked_records_is_what_their_masked_parts_have(
    records: list[Record], wanted: RecordFilter, rules: list[str]
) -> None:
    masks = Masks(map(mask_rule, (f"t:{rule}" for rule in rules)), "t")
    piece = FetchedPiece(0, build_batch(records, base_offset=0), (), 0, len(records), 100, 1 << 18, False)
    found = select_records(piece, replace(wanted, masks=masks), None)
    masked = build_batch([masks.mask_record(record) for record in records], base_offset=0)
    expected = select_records(piece._replace(records=masked), wanted, None)
    assert [each.offset for each in found.records] == [each.offset for each in expected.records]


@pytest.mark.parametrize(
    ("rule", "field", "masked"),
    [
        ("value.customer.name", ("customer.id", "7"), 0),
        ("value.customer.name", ("customer.name", "Anna"), 10),
        ("value.customer.name", ("customer.name", "Berta"), 10),
        ("value.customer", ("customer.name", "Anna"), 10),
        ("value.*.name", ("customer.name", "Anna"), 10),
        ("value.customer.name.first", ("customer.name", "Anna"), 10),
        ("value", ("customer.id", "7"), 10),
        ("value.customer.name", ("customer.id", "5"), 10),
    ],
)
def test_the_work_for_a_record_does_not_depend_on_a_masked_part(
    monkeypatch: pytest.MonkeyPatch, rule: str, field: tuple[str, str], masked: int
) -> None:
    """A searcher who guesses a masked name must not see by the time that a record has it."""
    masks = Masks([mask_rule(f"t:{rule}")], "t")
    calls = 0
    applied = Masks.mask_record

    def count(self: Masks, record: Record) -> Record:
        nonlocal calls
        calls += 1
        return applied(self, record)

    monkeypatch.setattr(Masks, "mask_record", count)
    records = [Record(value=b'{"customer": {"id": 5, "name": "Anna"}}')] * 10
    piece = FetchedPiece(0, build_batch(records, base_offset=0), (), 0, 10, 100, 1 << 18, False)
    select_records(piece, replace(wanted_of(None, None, None, ""), masks=masks, field=field), None)
    assert calls == masked


def test_bytes_are_read_from_the_file_that_was_looked_up_alone() -> None:
    files = MemoryFiles(lambda: 0)
    file = files.open("/log", create=True)
    file.append([b"batches"])
    inode = files.stamp("/log").inode
    assert work._bytes_at(files, work.FilePlace("/log", inode, 0, 7)) == b"batches"
    assert work._bytes_at(files, work.FilePlace("/log", inode + 1, 0, 7)) is None
    assert work._bytes_at(files, work.FilePlace("/gone", inode, 0, 7)) is None


def test_a_long_stretch_gives_way_to_other_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SEARCH_EFFORT", 1)
    data = b"".join(build_batch([Record(value=b"v")], base_offset=at) for at in range(5))
    wanted = wanted_of(None, None, None, "x.y")
    state = work.WorkerState(None, None)  # type: ignore[arg-type]
    seen = work.searched(state, FetchedPiece(0, data, (), 0, 5, 10, 1 << 18, False), wanted, None)
    assert seen is not None and seen.selected.next_offset < 5
