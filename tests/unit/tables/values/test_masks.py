"""Rules change parts of records, and what they cannot parse as a whole."""

from __future__ import annotations

import json

import pytest

from moldau.protocol.record_builder import Record
from moldau.tables.values.masks import DROP_VALUE, Masks, mask_rule

CARD = {"id": 7, "card": {"number": "4111", "name": "A"}, "items": [{"pin": 1}, {"pin": 2, "n": 3}]}


def masked(rules: list[str], record: Record, topic: str = "orders") -> Record:
    return Masks(map(mask_rule, rules), topic).mask_record(record)


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


@pytest.mark.parametrize(
    ("rule", "path", "expected"),
    [
        ("value.card.number", "card.number", True),
        ("value.card.number", "card", True),
        ("value.card", "card.number", True),
        ("value.*.number", "card.number", True),
        ("value", "card.number", True),
        ("value.card.number", "card.name", False),
        ("value.card", "id", False),
        ("key", "card", False),
    ],
)
def test_a_field_is_changed_with_what_contains_it_and_what_is_within_it(rule: str, path: str, expected: bool) -> None:
    masks = Masks([mask_rule(f"*:{rule}")], "orders")
    assert masks.may_change("value", path.split(".")) is expected
    assert masks.may_change("key") is (rule == "key") and masks.may_change("value") is (rule != "key")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_numbers_of_other_fields_keep_their_digits(encoding: str) -> None:
    numbers = '"amount": 12345678901234567.89, "rest": [1.10, 1E+400, -0.0, 1.234567890123456789, 7]'
    found = masked(["*:value.card"], Record(value=f'{{"card": 1.5, {numbers}}}'.encode(encoding)))
    assert found.value == f'{{"card": "***", {numbers}}}'.encode()


def test_a_change_gets_the_numbers_of_a_field() -> None:
    got: list[object] = []
    rules = [mask_rule("*:value.a", got.append), mask_rule("*:value.b", got.append)]
    Masks(rules, "t").mask_record(Record(value=b'{"a": 1.50, "b": {"c": [2.25, "1.5", 3]}}'))
    assert got == [1.5, {"c": [2.25, "1.5", 3]}]


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
    assert not Masks([mask_rule("*:value")], "__consumer_offsets")
    assert Masks([mask_rule("__*:value")], "__consumer_offsets")


@pytest.mark.parametrize("rule", ["orders", "orders:", ":value", "orders:body", "orders:value.", "orders:value..x"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="is not TOPICS:PART"):
        mask_rule(rule)


def test_a_rule_may_leave_a_part_out() -> None:
    def dropped(rule: str, record: Record) -> Record:
        return Masks([mask_rule(rule, lambda _: DROP_VALUE)], "orders").mask_record(record)

    record = Record(b"anna", json.dumps(CARD).encode(), headers=(("auth", b"secret"), ("trace", None)))
    assert json.loads(dropped("*:value.card", record).value or b"") == {"id": 7, "items": CARD["items"]}
    assert dropped("*:headers.auth", record).headers == (("trace", None),)
    assert dropped("*:headers", record).headers == ()
    assert (dropped("*:key", record).key, dropped("*:value", record).value) == (b"", b"")


def test_the_first_rule_of_a_header_or_a_whole_part_changes_it() -> None:
    rules = [mask_rule("*:headers.auth"), mask_rule("*:headers", lambda value: value[:1]), mask_rule("*:value")]
    record = Masks(rules, "t").mask_record(Record(value=b"v", headers=(("auth", b"secret"), ("trace", b"17"))))
    assert record == Record(value=b"***", headers=(("auth", b"***"), ("trace", b"1")))
