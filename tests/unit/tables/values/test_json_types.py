"""JSON schemas as generators write them: the column of each, and the value in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra moldau[arrow] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.converters import converter_to
from moldau.tables.values.json_types import OTHERS, json_type
from moldau.tables.values.registry import Reference, Schema, ValueNotDecoded


def of_schema(schema: object, **references: object) -> pa.DataType:
    named = tuple(Reference(name, json.dumps(each).encode()) for name, each in references.items())
    return json_type(Schema("JSON", json.dumps(schema).encode(), named)).type


def closed(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def of_property(schema: object, **definitions: object) -> pa.DataType | None:
    """The column of one property; None if it has none."""
    whole = of_schema({**closed(a=schema), "$defs": definitions, "definitions": definitions})
    return whole.field("a").type if whole.get_field_index("a") >= 0 else None


def stored(schema: object, value: object) -> object:
    """A value as it is in a column of its schema."""
    kind = of_schema(schema)
    return pa.array([converter_to(kind)(value)], kind).to_pylist()[0]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, pa.int64()),
        ({"type": ["string", "null"]}, pa.string()),
        ({"type": "string", "format": "date-time"}, pa.string()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64()),
        ({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Colour"}]}, pa.string()),
        ({"$ref": "#/definitions/Colour"}, pa.string()),
        ({"allOf": [{"$ref": "#/definitions/Colour"}], "default": "red"}, pa.string()),
        ({"$ref": "#red", "description": "by its anchor"}, pa.string()),
        ({"$ref": "#/$defs/a~1b"}, pa.bool_()),
        ({"enum": ["a", "b"]}, pa.string()),
        ({"enum": [1, 2, None]}, pa.int64()),
        ({"enum": [1, 2.5]}, pa.float64()),
        ({"const": True}, pa.bool_()),
        ({"items": {"type": "number"}}, pa.list_(pa.field("element", pa.float64()))),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.map_(pa.string(), pa.int64())),
        ({"type": "object"}, pa.struct([(OTHERS, pa.string())])),
        ({"properties": {"x": {"type": "integer"}}, "additionalProperties": False}, pa.struct([("x", pa.int64())])),
        (closed(), pa.bool_()),
        # Alternatives that one struct holds, and those that no type holds.
        (
            {"oneOf": [closed(x={"type": "integer"}), closed(y={"type": "string"})]},
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, None),
        ({"type": ["integer", "string"]}, None),
        ({"enum": ["a", 1]}, None),
        ({"type": "array"}, None),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, None),
        ({"type": "null"}, None),
        ({"$ref": "#/$defs/Tree"}, None),
        ({}, None),
        (True, None),
    ],
)
def test_the_column_of_a_property(schema: object, expected: pa.DataType | None) -> None:
    tree = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Tree"}}, {"type": "null"}]}
    red = {"$anchor": "red", "const": "red"}
    found = of_property(schema, Colour={"enum": ["red", "blue"]}, Tree=tree, Red=red, **{"a/b": {"type": "boolean"}})
    assert found == expected


def test_what_the_schema_does_not_name_is_kept_as_json() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "any": {}}}
    assert stored(schema, {"a": 1, "b": [1, {"c": "ž"}], "any": 2.5}) == {
        "a": 1,
        OTHERS: '{"b": [1, {"c": "ž"}], "any": 2.5}',
    }
    assert stored(schema, {"a": 1}) == {"a": 1, OTHERS: None}
    assert stored({"type": "object"}, {"x": None}) == {OTHERS: '{"x": null}'}
    nested = closed(inner={"type": "array", "items": schema})
    assert stored(nested, {"inner": [{"b": 1}, None]}) == {"inner": [{"a": None, OTHERS: '{"b": 1}'}, None]}
    with pytest.raises(ValueNotDecoded, match=r"value\.b is a property that the schema does not allow"):
        stored(closed(a={"type": "integer"}), {"a": 1, "b": 2})


def test_names_that_engines_would_take_for_one_column_are_kept_as_json() -> None:
    named = {"type": "string"}
    dotted = {"type": "object", "properties": {"a.b": named, "c.d": named, "a": closed(b=named)}}
    assert stored(dotted, {"a.b": "x", "c.d": "y", "a": {"b": "z"}}) == {
        "c.d": "y",
        "a": {"b": "z"},
        OTHERS: '{"a.b": "x"}',
    }
    assert stored(closed(id=named, ID=named), {"id": "x", "ID": "y"}) == {OTHERS: '{"id": "x", "ID": "y"}'}
    own = {"type": "object", "properties": {OTHERS: named}}
    assert stored(own, {OTHERS: "x", "b": 1}) == {OTHERS: f'{{"{OTHERS}": "x", "b": 1}}'}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.5),
        ({"type": "integer"}, 9007199254740993.0),  # It is 9007199254740992 already.
        ({"type": "integer"}, True),
        ({"type": "integer"}, "1"),
        ({"type": "number"}, False),
        ({"type": "boolean"}, 1),
        ({"type": "string"}, 1),
        ({"items": {"type": "string"}}, "abc"),
        (closed(x={"type": "integer"}), [["x", 1]]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "ab"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path(schema: object, value: object) -> None:
    with pytest.raises(ValueNotDecoded, match=r"value\.a does not hold "):
        stored(closed(a=schema), {"a": value})


def test_an_integer_of_json_may_be_written_with_a_point() -> None:
    assert stored({"type": "integer"}, 2.0) == 2
    assert stored({"type": "integer"}, -9007199254740991.0) == -9007199254740991


def test_a_reference_of_the_registry_is_found_by_its_name() -> None:
    other = {"definitions": {"Town": closed(name={"type": "string"})}, **closed(town={"$ref": "#/definitions/Town"})}
    found = of_schema(
        {**closed(a={"$ref": "address.json"}, b={"$ref": "address.json#/definitions/Town"})}, **{"address.json": other}
    )
    town = pa.struct([("name", pa.string())])
    assert found == pa.struct([("a", pa.struct([("town", town)])), ("b", town)])
    with pytest.raises(ValueNotDecoded, match=r"refers to gone\.json, which the registry does not name"):
        of_schema(closed(a={"$ref": "gone.json"}))
    with pytest.raises(ValueNotDecoded, match="refers to #/definitions/Gone, which it does not have"):
        of_schema(closed(a={"$ref": "#/definitions/Gone"}))


def test_what_pydantic_writes() -> None:
    pydantic = pytest.importorskip("pydantic")
    from datetime import datetime
    from enum import Enum
    from typing import Literal

    class Colour(Enum):
        RED = "red"

    class Town(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str
        size: int | None = None

    class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        id: int
        at: datetime
        town: Town | None
        towns: dict[str, Town]
        colour: Colour
        kind: Literal["a", "b"] = "a"
        either: int | str
        anything: Any = None

    value = json.loads(
        Order(
            id=1, at="2026-01-02T00:00:00Z", town=None, towns={"x": Town(name="Brno")}, colour="red", either="e"
        ).model_dump_json()
    )
    assert stored(Order.model_json_schema(), value) == {
        "id": 1,
        "at": "2026-01-02T00:00:00Z",
        "town": None,
        "towns": [("x", {"name": "Brno", "size": None, OTHERS: None})],
        "colour": "red",
        "kind": "a",
        OTHERS: '{"either": "e", "anything": null}',
    }


def test_a_schema_without_a_type_is_refused() -> None:
    schemas: tuple[object, ...] = ({}, {"type": ["string", "integer"]}, {"anyOf": []}, True, {"$ref": "#"})
    for schema in schemas:
        with pytest.raises(ValueNotDecoded, match="gives no single type"):
            of_schema(schema)
