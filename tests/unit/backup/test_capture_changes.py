"""Masks of a capture: secrets are gone, equal values stay equal if that was asked for."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.backup.capture.changes import MaskFunctions
from moldau.protocol.record_builder import Record
from moldau.tables.values.masks import Masks

CHANGES = MaskFunctions(bytes(32))
OTHER = MaskFunctions(b"\x01" * 32)
SECRET = {"name": "Ada Lovelace", "age": 36, "rate": 1.5, "vip": True, "notes": ["x"], "gone": None}


def changed(rule: str, record: Record, changes: MaskFunctions = CHANGES) -> Record:
    return Masks([changes.parse_rule(rule)], "orders").mask_record(record)


def fields(rule: str, changes: MaskFunctions = CHANGES) -> dict[str, Any]:
    value = changed(rule, Record(value=json.dumps(SECRET).encode()), changes).value
    assert value is not None
    found: dict[str, Any] = json.loads(value)
    return found


def test_replace_is_the_change_without_a_word() -> None:
    assert fields("*:value.name") == fields("*:value.name=replace") == {**SECRET, "name": "***"}


def test_drop_leaves_the_field_out() -> None:
    assert fields("*:value.name=drop") == {key: each for key, each in SECRET.items() if key != "name"}


def test_equal_values_have_equal_hashes_of_one_key_alone() -> None:
    hashed = fields("*:value.*=hash")
    assert hashed == fields("*:value.*=hash") != fields("*:value.*=hash", OTHER)
    assert len(hashed["name"]) == 32
    assert hashed["gone"] is None
    assert {type(hashed[name]) for name in ("age", "rate")} == {int}
    assert changed("*:key=hash", Record(key=b"ada")).key == changed("*:key=hash", Record(key=b"ada")).key != b"ada"


def test_a_shape_keeps_length_case_and_punctuation() -> None:
    shaped = fields("*:value.*=shape")
    name = shaped["name"]
    assert [letter.isupper() for letter in name] == [letter.isupper() for letter in SECRET["name"]]  # type: ignore[attr-defined]
    assert (name[3], len(name), name != SECRET["name"]) == (" ", 12, True)
    assert 10 < shaped["age"] < 100
    assert (shaped["vip"], shaped["notes"], shaped["gone"]) == ("***", "***", None)
    assert changed("*:value=shape", Record(value=b"a-1@b.org")).value != b"a-1@b.org"
    assert changed("*:value=shape", Record(value=b"\xff\x00")).value == b"***"


@pytest.mark.parametrize("value", [(42).to_bytes(8), b"\x00\x00\x00\x00\x01\x24\x06Ada", b"\x08\x24\x12\x03Ada"])
def test_bytes_that_are_no_text_have_no_shape(value: bytes) -> None:
    """A number as a key, a value of Avro and one of Protobuf are UTF-8, and their numbers are no digits."""
    assert value.decode()
    record = changed("*:value=shape", changed("*:key=shape", Record(key=value, value=value)))
    assert (record.key, record.value) == (b"***", b"***")


def test_a_rule_that_has_changed_nothing_is_known() -> None:
    changes = MaskFunctions(bytes(32))
    rules = [changes.parse_rule(text) for text in ("orders:value.name", "orders:value.nmae=hash", "other:key")]
    Masks(rules, "orders").mask_record(Record(key=b"k", value=json.dumps(SECRET).encode()))
    assert changes.used_rules == {"orders:value.name"}


@given(st.floats())
def test_the_shape_of_a_float_is_a_float(value: float) -> None:
    shaped = CHANGES.same_shape_value(value)
    assert isinstance(shaped, float)
    assert math.isfinite(shaped)


@pytest.mark.parametrize("rule", ["orders:value=erase", "orders=hash", "orders:body=hash"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        CHANGES.parse_rule(rule)
