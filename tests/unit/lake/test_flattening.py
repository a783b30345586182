"""Flat tables: the columns of a type, and the values in them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.lake.flattening import flatten_type
from moldau.tables.values.registry import ValueNotDecoded

LINE = pa.struct([("Sku", pa.string()), ("Of", pa.struct([("N", pa.int32())]))])


@pytest.mark.parametrize(
    ("kind", "column", "names"),
    [
        (pa.struct([("Id", pa.int32()), ("a-b", pa.string())]), "value", ["id", "a_b"]),
        (pa.struct([("id", pa.int32()), ("of", pa.struct([("x", pa.string())]))]), "key", ["key_id", "key_of_x"]),
        (
            pa.struct([(name, pa.int32()) for name in ("key", "offset", "headers", "key_id", "keys")]),
            "value",
            ["value_key", "value_offset", "value_headers", "value_key_id", "keys"],
        ),
        (pa.string(), "value", ["value"]),
        (pa.string(), "key", ["key"]),
    ],
)
def test_the_columns_of_a_type(kind: pa.DataType, column: str, names: list[str]) -> None:
    assert [each.name for each in flatten_type(kind, column)[0]] == names


def test_lists_and_maps_stay_with_names_in_lower_case() -> None:
    kind = pa.struct([("Lines", pa.list_(LINE)), ("By", pa.map_(pa.string(), LINE)), ("Plain", pa.list_(pa.int32()))])
    flat, of = flatten_type(kind, "value")
    line, made = {"Sku": "s", "Of": {"N": 1}}, {"sku": "s", "of": {"n": 1}}
    value = {"Lines": [line, None, {"Sku": None, "Of": None}], "By": {"K": line, "L": None}, "Plain": [1]}
    row = of(value)
    assert row == {
        "lines": [made, None, {"sku": None, "of": None}],
        "by": [("K", made), ("L", None)],
        "plain": [1],
    }
    assert pa.array([row, None], flat).to_pylist() == [row, None]
    assert of({"Lines": None, "By": None, "Plain": None}) == {"lines": None, "by": None, "plain": None}


def test_a_struct_that_is_null_has_null_columns() -> None:
    kind = pa.struct([("a", pa.struct([("b", pa.struct([("c", pa.int32())]))])), ("d", pa.int32())])
    _, of = flatten_type(kind, "value")
    assert of({"a": None, "d": 1}) == {"a_b_c": None, "d": 1}
    assert of({"a": {"b": None}, "d": None}) == {"a_b_c": None, "d": None}
    assert of(None) is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a_b", pa.int32()), ("a", pa.struct([("b", pa.int32())]))]),
        pa.struct([("Id", pa.int32()), ("id", pa.int32())]),
        pa.list_(pa.struct([("Id", pa.int32()), ("id", pa.int32())])),
    ],
)
def test_two_fields_are_not_one_column(kind: pa.DataType) -> None:
    with pytest.raises(ValueNotDecoded, match="two fields"):
        flatten_type(kind, "value")
