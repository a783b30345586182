"""Masked parts of records are neither shown nor found."""

from __future__ import annotations

import json

from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.node import Node, serve_and

CARD = {"id": 7, "card": {"number": "4111", "name": "A"}, "items": [{"pin": 1}, {"pin": 2, "n": 3}]}


def test_a_masked_field_is_neither_shown_nor_found_by_any_search() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        record = Record(key=b"anna", value=json.dumps(CARD).encode(), timestamp=1)
        await client.produce("orders", build_batch([record]))
        page = "/topics/orders/records"
        for form in ("auto", "json", "text", "hex"):
            html = (await get(f"{page}?form={form}&whole=yes"))[2]
            assert "4111" not in html and b"4111".hex(" ") not in html and "anna" not in html, form
        assert '"name": "A"' in (await json_of(page))["records"][0]["value"]["text"]
        for query in ("find=4111", "find=4111&place=value", "key=anna", "find=anna&place=key"):
            assert (await json_of(f"{page}?{query}"))["records"] == [], query
        assert len((await json_of(f"{page}?find=number&place=value"))["records"]) == 1

    serve_and(story, **SETTINGS, moldau_console_masks="orders:value.card.number,*:key")
