"""Values that cost much to decode or to show cost the node little, and the page says what it leaves out."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.console import lag, record_pages
from moldau.broker.console.decoding.schemas import Schemas
from moldau.broker.console.decoding.selection import (
    EXPANDED_MAX,
    FetchedPiece,
    RecordFilter,
    SelectedRecords,
    select_records,
)
from moldau.broker.console.decoding.texts import KEY_SHOWN, bytes_as_text, pretty_json
from moldau.broker.runtime.limited_work import LimitedWorker, WorkProcessEnded
from moldau.protocol.compression import Codec
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.values.bounds import DEPTH_MAX
from moldau.tables.values.masks import Masks, mask_rule
from tests.support.console_client import HTTP_PORT, SETTINGS, get, json_of
from tests.support.node import HOST, Node, batch, serve_and


def selected(
    data: bytes, count: int, schemas: Schemas | None = None, *, rules: tuple[str, ...] = (), newest: bool = False
) -> SelectedRecords:
    wanted = RecordFilter(True, None, "", "any", "auto", RecordKind.PLAIN, True, Masks(map(mask_rule, rules), "t"))
    return select_records(FetchedPiece(0, data, (), 0, count, 500, 1 << 16, newest), wanted, schemas)


def test_a_framed_value_that_is_nested_too_deeply_is_shown_as_bytes_with_a_note(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    link = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
    (tmp_path / "7.avsc").write_text(json.dumps(link))
    frame = struct.pack(">bi", 0, 7)
    values = [frame + b"\2" * (DEPTH_MAX - 1) + b"\0", frame + b"\2" * DEPTH_MAX + b"\0"]
    data = build_batch([Record(value=each, timestamp=1) for each in values])
    fits, deep = selected(data, 2, Schemas(str(tmp_path), lambda: 0)).records
    assert (fits.value.form, fits.notes) == ("json", "value: schema 7")
    assert (deep.value.form, deep.notes) == ("hex", f"value: the value is nested deeper than {DEPTH_MAX}")


def test_json_is_made_readable_as_far_as_it_is_shown() -> None:
    deep = b"[" * DEPTH_MAX + b"[]," * 100_000 + b"0" + b"]" * DEPTH_MAX
    shown = bytes_as_text(deep, "auto", 200_000)
    assert shown.form == "text", "nested one level too deep, it is shown as it is"
    made = pretty_json(json.loads(b"[" * 90 + b"[]," * 100_000 + b"0" + b"]" * 90), 5_000)
    assert len(made) <= 5_100
    assert bytes_as_text(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, "auto", 20_000).form == "json"


def test_what_is_masked_and_nested_too_deeply_is_masked_as_a_whole() -> None:
    value = b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1)
    (record,) = selected(build_batch([Record(value=value, timestamp=1)]), 1, rules=("t:value.b",)).records
    assert record.value.text == "***"


def test_names_and_values_of_headers_are_cut() -> None:
    headers = tuple(("n" * 60_000, b"v" * 60_000) for _ in range(30))
    (record,) = selected(build_batch([Record(value=b"v", timestamp=1, headers=headers)]), 1).records
    assert {(len(name), len(value)) for name, value in record.headers} == {(KEY_SHOWN, KEY_SHOWN)}
    assert record.notes == "10 more headers"


@pytest.mark.parametrize("newest", [False, True])
def test_a_piece_that_expands_is_looked_at_in_parts(newest: bool) -> None:
    one = build_batch([Record(value=b"a" * 1_000_000, timestamp=1)] * 12, codec=Codec.ZSTD)
    data = b"".join(_at(one, base) for base in range(0, 120, 12))
    found = selected(data, 120, newest=newest)
    assert EXPANDED_MAX < found.expanded < EXPANDED_MAX + 13_000_000 or not newest
    assert found.next_offset < 120
    assert sum(each.characters for each in found.records) < 300_000


def _at(data: bytes, base_offset: int) -> bytes:
    return struct.pack(">q", base_offset) + data[8:]


def test_batches_that_expand_end_a_page_early(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        for _ in range(6):
            record = Record(value=b"a" * 1_000_000, timestamp=1)
            await client.produce("t", build_batch([record] * 8, codec=Codec.ZSTD))
        page = await json_of("/topics/t/records?begin=oldest&limit=500&key=none")
        assert page["records"] == [] and not page["is_complete"] and "at=" in page["further"]

    monkeypatch.setattr(record_pages, "PAGE_EXPANDED", 10_000_000)
    serve_and(story, **SETTINGS)


def test_a_page_has_a_limited_number_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 3)
        for partition in range(3):
            records = [Record(value=b"%d" % partition * 150_000, timestamp=at) for at in range(8)]
            await client.produce("t", build_batch(records, codec=Codec.ZSTD), partition=partition)
        for begin in ("newest", "oldest"):
            page = await json_of(f"/topics/t/records?whole=yes&limit=500&begin={begin}")
            assert 2 <= len(page["records"]) <= 4 and not page["is_complete"]
            shown = [len(each["value"]["text"]) for each in page["records"]]
            assert shown[0] == 150_000 and sum(shown) <= 400_000 + 150_000
        page = await json_of("/topics/t/records?whole=yes&begin=oldest&partition=1")
        further = await json_of(page["further"])
        assert further["records"][0]["offset"] == page["records"][-1]["offset"] + 1

    monkeypatch.setattr(record_pages, "PAGE_CHARACTERS", 400_000)
    serve_and(story, **SETTINGS)


def ending(ask: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    """A process that ends at its first question."""

    async def asked(self: LimitedWorker, sent: object, asker: str) -> object:
        calls.append(sent)
        if len(calls) == 1:
            raise WorkProcessEnded("its process was ended by SIGSEGV")
        return await ask(self, sent, asker)

    return asked


def test_the_end_of_the_process_is_a_sentence_and_the_next_page_has_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.produce("t", batch("a", "b"))
        said = "t-0: what is stored from offset 0 on was not decoded: its process was ended by SIGSEGV"
        page = await json_of("/topics/t/records")
        assert (page["errors"], page["records"], page["is_complete"]) == ([said], [], False)
        assert len((await json_of("/topics/t/records"))["records"]) == 2
        calls.clear()
        assert said in (await get("/topics/t/records"))[2]

    calls: list[object] = []
    monkeypatch.setattr(LimitedWorker, "ask", ending(LimitedWorker.ask, calls))
    serve_and(story, **SETTINGS)


def test_idle_tails_ask_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[object] = []
    fetch = lag.fetch

    async def counted(*given: Any, **named: Any) -> Any:
        fetched.append(given[1])
        return await fetch(*given, **named)

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 64)
        reader, writer = await asyncio.open_connection(HOST, HTTP_PORT)
        writer.write(f"GET /topics/t/records/tail HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        while not (await reader.readline()).startswith(b": nothing new"):
            pass
        await asyncio.sleep(5)
        assert fetched == []
        await client.produce("t", batch("a"), partition=7)
        while not (await reader.readline()).startswith(b"data: "):
            pass
        assert fetched == [("t", 7)]
        writer.close()

    monkeypatch.setattr(record_pages, "fetch", counted)
    serve_and(story, **SETTINGS)
