"""A field of `--where` that no value has is told with the name that was meant."""

from __future__ import annotations

import json

import pytest

from moldau.broker.cli.daily.records.printing import FIELDS_SHOWN_MAX, FieldsSeen, filter_of
from moldau.protocol.record_builder import Record

VALUES = (b'{"customer": {"id": 7}, "what": "rolls"}', b"no JSON", b'{"customer": null}', b"[1]")


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        (["custmer=7"], "none of the compared values has the field custmer; did you mean customer?"),
        (["price=7"], "none of the compared values has the field price; the fields are customer, what"),
        (["customer.id=8"], None),
        (["what=bread", "customer.id=7"], None),
        (["what=rolls", "price=7"], "none of the compared values has the field price; the fields are customer, what"),
        ([], None),
    ],
)
def test_a_field_that_no_value_has_is_told(fields: list[str], note: str | None) -> None:
    seen = FieldsSeen()
    passes = filter_of(None, None, [], fields, seen)
    assert any(passes(Record(None, value)) for value in VALUES) == (not fields)
    assert seen.note() == note


def test_values_that_are_no_json_have_no_fields() -> None:
    seen = FieldsSeen()
    assert not filter_of(None, None, [], ["a=1"], seen)(Record(None, b"text"))
    assert seen.note() is None


def test_a_message_lists_a_bounded_number_of_fields() -> None:
    seen = FieldsSeen()
    passes = filter_of(None, None, [], ["a=1"], seen)
    for start in range(0, 3 * FIELDS_SHOWN_MAX, 7):
        passes(Record(None, json.dumps({f"field{number}": 0 for number in range(start, start + 7)}).encode()))
    assert len(seen.names) == FIELDS_SHOWN_MAX
