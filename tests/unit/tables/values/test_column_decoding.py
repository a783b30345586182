"""Framed values as columns of Arrow: by schema, as JSON, and with the place of a value that is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import moldau
from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import ColumnDecoding
from moldau.tables.values.json_types import OTHERS
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.protobuf_messages import FRAMED, NO_MESSAGE, frame, put_schema

STRUCT = pa.struct([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def registry(tmp_path: Path) -> str:
    (tmp_path / "7.json").write_text("{}")
    return str(tmp_path)


def framed(value: object) -> bytes:
    return pack(">bi", 0, 7) + json.dumps(value).encode()


def rows(*values: bytes | None) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["t"] * count,
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(40, 40 + count), pa.int64()),
        }
    )


def test_values_become_json_or_structs(registry: str) -> None:
    given = rows(framed({"id": 1, "name": "a"}), None, framed({"id": 2}))
    assert [each and json.loads(each) for each in moldau.values(given, registry=registry).to_pylist()] == [
        {"id": 1, "name": "a"},
        None,
        {"id": 2},
    ]
    structs = [{"id": 1, "name": "a"}, None, {"id": 2, "name": None}]
    for form in (given, given["value"], given["value"].chunk(0), given.to_batches()[0]):
        decoded = moldau.values(form, registry=registry, returns=STRUCT)
        assert decoded.type == STRUCT and decoded.to_pylist() == structs


def test_numbers_of_json_keep_their_digits(registry: str) -> None:
    others = '{"amount": 12345678901234567.89, "rest": [1.10, 1E+400, -0.0, 1.234567890123456789, 1e5, 7]}'
    text = f'{{"id": 1.00, "x": 2.50, {others[1:]}'
    assert moldau.values(rows(pack(">bi", 0, 7) + text.encode()), registry=registry).to_pylist() == [text]
    columns = pa.struct([("id", pa.int64()), ("x", pa.float64()), (OTHERS, pa.string())])
    strict = ColumnDecoding(None, columns, "fail", (), is_strict=True)
    assert strict.decode_column(pa.array([text.encode()])).to_pylist() == [{"id": 1, "x": 2.5, OTHERS: others}]
    for kind in (pa.float64(), pa.string(), pa.binary(), pa.string_view(), pa.bool_()):
        of_kind = ColumnDecoding(None, pa.struct([("x", kind)]), "fail", ())
        with pytest.raises(ValueNotDecoded, match="does not"):
            of_kind.decode_column(pa.array([b'{"x": 1.0E+400}']))


def test_a_value_that_is_not_framed_is_named_or_null(registry: str) -> None:
    given = rows(framed({"id": 1}), b"plain")
    with pytest.raises(ValueNotDecoded, match="topic t, partition 3, offset 41: the value is not framed"):
        moldau.values(given, registry=registry)
    assert moldau.values(given, registry=registry, returns=STRUCT, on_error="null").to_pylist()[1] is None


def test_what_cannot_be_decoded_at_all_is_refused(registry: str) -> None:
    with pytest.raises(Refused, match="the rows have no column payload"):
        moldau.values(rows(), registry=registry, column="payload")
    with pytest.raises(Refused, match="on_error: skip is none of fail, null and keep"):
        moldau.values(rows(), registry=registry, on_error="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FRAMED)
def test_the_frame_chooses_the_message_of_a_column(tmp_path: Path, name: str) -> None:
    put_schema(tmp_path)
    value, expected = FRAMED[name]
    assert moldau.values(rows(frame(value)), registry=str(tmp_path)).to_pylist() == [json.dumps(expected)]
    (field,) = expected
    kind = pa.struct([(field, pa.scalar(expected[field]).type), ("other", pa.string())])
    decoded = moldau.values(rows(frame(value)), registry=str(tmp_path), returns=kind)
    assert decoded.to_pylist() == [{**expected, "other": None}]
    if field != "id":
        given = rows(frame(FRAMED["the first"][0]), frame(value))
        with pytest.raises(ValueNotDecoded, match=f"offset 41: .* it has no field of the result but {field}$"):
            moldau.values(given, registry=str(tmp_path), returns=STRUCT)
        found = moldau.values(given, registry=str(tmp_path), returns=STRUCT, on_error="null")
        assert found.to_pylist() == [{"id": 5, "name": None}, None]


@pytest.mark.parametrize("path", NO_MESSAGE)
def test_a_frame_that_names_no_message_of_the_schema(tmp_path: Path, path: bytes) -> None:
    put_schema(tmp_path)
    with pytest.raises(ValueNotDecoded, match="offset 40: the schema has no message at"):
        moldau.values(rows(frame(path)), registry=str(tmp_path))
