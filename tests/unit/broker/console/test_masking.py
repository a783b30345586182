"""Masked parts of records are neither shown nor found."""

from __future__ import annotations

import json

import pytest

from moldau.broker.config.console import mask_rule_parts
from moldau.broker.console.decoding.masking import Masks
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.node import Node, serve_and

CARD = {"id": 7, "card": {"number": "4111", "name": "A"}, "items": [{"pin": 1}, {"pin": 2, "n": 3}]}


def masked(rules: list[str], record: Record, topic: str = "orders") -> Record:
    return Masks(rules, topic).applied(record)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("orders:value.card.number", {**CARD, "card": {"number": "***", "name": "A"}}),
        ("ord*:value.card", {**CARD, "card": "***"}),
        ("*:value.items.pin", {**CARD, "items": [{"pin": "***"}, {"pin": "***", "n": 3}]}),
        ("*:value.*.number", {**CARD, "card": {"number": "***", "name": "A"}}),
        ("*:value.missing", CARD),
        ("payments:value.card", CARD),
        ("*:key", CARD),
    ],
)
def test_fields_of_json_are_masked(rule: str, expected: object) -> None:
    found = masked([rule], Record(value=json.dumps(CARD).encode()))
    assert json.loads(found.value or b"") == expected


def test_what_cannot_be_parsed_is_masked_as_a_whole() -> None:
    assert masked(["*:value.card"], Record(value=b'{"card": 4111')).value == b"***"
    assert masked(["*:value.card"], Record(value=b"[" * 100_000)).value == b"***"
    assert masked(["*:value.card"], Record(value=None)).value is None


def test_keys_and_headers_are_masked() -> None:
    record = Record(key=b"anna", value=b"v", headers=(("auth", b"secret"), ("trace", b"1")))
    assert masked(["*:key"], record).key == b"***"
    assert masked(["*:headers.auth"], record).headers == (("auth", b"***"), ("trace", b"1"))
    assert masked(["*:headers"], record).headers == (("auth", b"***"), ("trace", b"***"))
    assert masked(["*:headers.x.y"], Record(headers=(("x.y", b"1"),))).headers == (("x.y", b"***"),)


def test_internal_topics_are_meant_by_rules_that_name_them_so() -> None:
    assert not Masks(["*:value"], "__consumer_offsets")
    assert Masks(["__*:value"], "__consumer_offsets")


@pytest.mark.parametrize("rule", ["orders", "orders:", ":value", "orders:body", "orders:value.", "orders:value..x"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="is not TOPICS:PART"):
        mask_rule_parts(rule)


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
