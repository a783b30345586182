"""The type of a topic's values from a sample: of plain JSON by its properties, of framed values by their schemas."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import ColumnDecoding
from moldau.tables.values.json_types import OTHERS
from moldau.tables.values.registry import SchemaSource
from moldau.tables.values.topic_types import PROPERTIES_MAX, NoSample, given_type, json_schema_of, sampled_type


def texts(*values: Any) -> list[bytes]:
    return [json.dumps(each).encode() for each in values]


def struct(**fields: Any) -> pa.DataType:
    return pa.struct([*fields.items(), (OTHERS, pa.string())])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, -5], pa.int64()),
        ([1, 1.5], pa.float64()),
        ([True], pa.bool_()),
        (["2026-11-29", None], pa.string()),
        ([1, True], None),
        ([1, "1"], None),
        ([None], None),
        ([[]], None),
        ([[1], [1.5, None]], pa.list_(pa.field("element", pa.float64()))),
        ([[1], ["a"]], None),
        ([{}], struct()),
        ([{"b": 1}, {"b": None, "c": "x"}], struct(b=pa.int64(), c=pa.string())),
        ([1 << 63], None),
        ([(1 << 53) + 1, 1.5], None),
        ([(1 << 63) - 1, -(1 << 63)], pa.int64()),
    ],
)
def test_the_type_of_a_property(values: list[Any], expected: pa.DataType | None) -> None:
    kind = sampled_type(texts(*({"a": each} for each in values)), None)
    assert kind == (struct() if expected is None else struct(a=expected))


def test_an_object_with_very_many_names_is_a_map() -> None:
    by_user = [{"counts": {f"user-{each}": each}} for each in range(PROPERTIES_MAX + 50)]
    assert sampled_type(texts(*by_user), None) == struct(counts=pa.map_(pa.string(), pa.int64()))
    mixed = texts(*by_user, {"counts": {"other": "text"}})
    assert sampled_type(mixed, None) == struct(counts=struct())
    nested = texts(*({"m": {f"k{each}": {"a": each, "b": [None]}}} for each in range(PROPERTIES_MAX + 1)))
    assert sampled_type(nested, None) == struct(m=pa.map_(pa.string(), struct(a=pa.int64())))


def test_values_without_a_type_are_refused() -> None:
    with pytest.raises(NoSample, match="there is no value to take a sample of"):
        json_schema_of([])
    with pytest.raises(NoSample, match="the values are of several types of JSON: array, object"):
        json_schema_of(texts({}, []))
    with pytest.raises(NoSample, match=r"none of 2 values gives a type: they are null or no JSON$"):
        json_schema_of([b"null", b"plain"])
    with pytest.raises(NoSample, match="no JSON; a schema registry has framed it"):
        json_schema_of([pack(">bi", 0, 7) + b"{}"])
    assert json_schema_of([b"plain", *texts({"a": 1})])["properties"] == {"a": {"type": "integer"}}


def test_a_schema_is_given_as_a_type_a_file_or_a_mapping(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    expected = struct(a=pa.int64())
    assert given_type(schema) == given_type(tmp_path / "s.json") == given_type(str(tmp_path / "s.json")) == expected
    assert given_type(expected) is expected
    with pytest.raises(Refused, match=r"schema .*gone: No such file or directory; it is `sample`, or a file with"):
        given_type(str(tmp_path / "gone"))
    with pytest.raises(Refused, match="the schema gives no single type"):
        given_type({})


def test_framed_values_have_the_types_of_their_schemas(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    for number, fields in {1: [("a", "int")], 2: [("a", "long"), ("b", "string")], 3: [("a", "string")]}.items():
        named = [{"name": name, "type": kind} for name, kind in fields]
        (tmp_path / f"{number}.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": named}))
    source = SchemaSource(str(tmp_path))
    one, two, three = (pack(">bi", 0, each) for each in (1, 2, 3))
    assert sampled_type([one, two, b"plain", pack(">bi", 0, 9)], source) == pa.struct(
        [("a", pa.int64()), ("b", pa.string())]
    )
    with pytest.raises(Refused, match=r"no column holds the values of schema 3 too: value\.a is int32"):
        sampled_type([one, three], source)
    with pytest.raises(NoSample, match="1 values gives no type: schema 9 is not in"):
        sampled_type([pack(">bi", 0, 9)], source)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aB.é", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aAb.", max_size=2), inner, max_size=3),
    max_leaves=12,
)


def restored(value: Any, kind: pa.DataType) -> Any:
    """A value of a column as the JSON that it was made of."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        found = {each.name: restored(value[each.name], each.type) for each in kind if each.name != OTHERS}
        return {**found, **({} if value[OTHERS] is None else json.loads(value[OTHERS]))}
    return [restored(each, kind.value_type) for each in value] if pa.types.is_list(kind) else value


def without_nulls(value: Any) -> Any:
    """The value without properties that are null, which are as those that are not there."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.text("aAb.", max_size=2), JSON, max_size=4), min_size=1, max_size=5))
def test_no_value_of_the_sample_is_lost_or_changed(values: list[dict[str, Any]]) -> None:
    kind = sampled_type(texts(*values), None)
    column = ColumnDecoding(None, kind, "fail", (), is_strict=True).decode_column(pa.array(texts(*values), pa.binary()))
    for value, found in zip(values, column.to_pylist(), strict=True):
        assert without_nulls(restored(found, kind)) == without_nulls(value)
