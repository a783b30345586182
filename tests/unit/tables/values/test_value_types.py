"""The types of values by their schemas, and what two schemas have in common."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.registry import Reference, Schema, ValueNotDecoded
from moldau.tables.values.value_types import TypesDiffer, merged_type, plain_type, type_of


def avro(schema: object, *references: object) -> pa.DataType:
    named = tuple(Reference(f"reference {number}", json.dumps(each).encode()) for number, each in enumerate(references))
    return type_of(Schema("AVRO", json.dumps(schema).encode(), named)).type


def record(*fields: tuple[str, object], name: str = "R") -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("string", pa.string()),
        (["null", "long"], pa.int64()),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32()))),
        ({"type": "map", "values": "double"}, pa.map_(pa.string(), pa.float64())),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC")),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "string", "logicalType": "unheard-of"}, pa.string()),
        (record(("a", "int"), ("b", {"type": "string"})), pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ],
)
def test_avro(schema: object, expected: pa.DataType) -> None:
    assert avro(schema).equals(expected)


def test_named_types_of_avro_are_found_with_and_without_their_namespace() -> None:
    inner = record(("x", "int"), name="p.Inner")
    assert avro(record(("a", "p.Inner")), inner).equals(pa.struct([("a", pa.struct([("x", pa.int32())]))]))
    outer = {**record(("a", inner), ("b", "Inner"), name="Outer"), "namespace": "p"}
    assert avro(outer).field("b").type.equals(pa.struct([("x", pa.int32())]))
    with pytest.raises(ValueNotDecoded, match="refers to Gone"):
        avro(record(("a", "Gone")))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (["int", "string"], "a union of 2 types"),
        (record(("next", ["null", "R"])), "contains itself"),
    ],
)
def test_what_is_not_a_column_is_refused(schema: object, problem: str) -> None:
    with pytest.raises(ValueNotDecoded, match=problem):
        avro(schema)


def test_protobuf() -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="the extra moldau[schemas]")
    of_field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="p", syntax="proto3")
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    item.field.add(name="sku", number=1, type=of_field.TYPE_STRING, label=of_field.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=of_field.TYPE_STRING, label=of_field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=of_field.TYPE_UINT64, label=of_field.LABEL_OPTIONAL)
    for number, (name, kind, label, named) in enumerate(
        [
            ("id", of_field.TYPE_INT32, of_field.LABEL_OPTIONAL, ""),
            ("items", of_field.TYPE_MESSAGE, of_field.LABEL_REPEATED, ".p.Order.Item"),
            ("counts", of_field.TYPE_MESSAGE, of_field.LABEL_REPEATED, ".p.Order.CountsEntry"),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=named or None)
    assert type_of(Schema("PROTOBUF", file.SerializeToString())).type.equals(
        pa.struct(
            [
                ("id", pa.int32()),
                ("items", pa.list_(pa.field("element", pa.struct([("sku", pa.string())])))),
                ("counts", pa.map_(pa.string(), pa.decimal128(20, 0))),
            ]
        )
    )
    file.message_type[0].field.add(
        name="again", number=4, type=of_field.TYPE_MESSAGE, label=of_field.LABEL_OPTIONAL, type_name=".p.Order"
    )
    with pytest.raises(ValueNotDecoded, match="contains itself"):
        type_of(Schema("PROTOBUF", file.SerializeToString()))


def test_types_grow_as_iceberg_lets_them() -> None:
    one = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.field("element", pa.float32())))])
    other = pa.struct([("c", pa.string()), ("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.float64())))])
    merged = merged_type(one, other)
    assert merged.equals(pa.struct([("a", pa.int64()), ("b", other.field("b").type), ("c", pa.string())]))
    assert merged_type(merged, one).equals(merged)
    assert merged_type(pa.decimal128(9, 2), pa.decimal128(12, 2)).equals(pa.decimal128(12, 2))
    assert merged_type(pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())).item_type == pa.int64()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int32(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.timestamp("us", "UTC"), pa.int64()),
    ],
)
def test_types_that_no_column_holds_are_named_by_their_field(one: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(TypesDiffer, match=r"value\.a\.element is"):
        merged_type(*(pa.struct([("a", pa.list_(pa.field("element", each)))]) for each in (one, other)))


def test_the_type_of_a_column_of_a_table_is_that_of_the_decoders() -> None:
    of_table = pa.struct([("a", pa.large_string()), ("b", pa.large_list(pa.field("element", pa.large_binary())))])
    plain = pa.struct([("a", pa.string()), ("b", pa.list_(pa.field("element", pa.binary())))])
    assert plain_type(of_table).equals(plain)
    assert plain_type(pa.map_(pa.large_string(), of_table)).equals(pa.map_(pa.string(), plain))


def test_fields_whose_names_differ_by_case_alone_are_no_columns() -> None:
    """DuckDB answers with the values of one for both, and Spark calls them ambiguous."""
    fields = [{"name": "id", "type": "int"}, {"name": "ID", "type": "int"}]
    both = Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}).encode())
    with pytest.raises(ValueNotDecoded, match="id and ID differ by case alone"):
        type_of(both)
    with pytest.raises(TypesDiffer, match="value has the field id, and the schema has ID"):
        merged_type(pa.struct([("id", pa.int32())]), pa.struct([("ID", pa.int32())]))


def test_a_schema_that_repeats_types_in_types_has_a_bound() -> None:
    """Thirty short definitions, each of which has the next one twice."""
    twice = record(("x", "int"), name="R30")
    for each in range(29, -1, -1):
        twice = record(("a", twice), ("b", f"R{each + 1}"), name=f"R{each}")
    definitions = {
        f"D{each}": {"properties": {name: {"$ref": f"#/$defs/D{each + 1}"} for name in "ab"}} for each in range(30)
    }
    whole = {"$ref": "#/$defs/D0", "$defs": {**definitions, "D30": {"type": "integer"}}}
    for schema in (Schema("AVRO", json.dumps(twice).encode()), Schema("JSON", json.dumps(whole).encode())):
        with pytest.raises(ValueNotDecoded, match="more than 10,000 types within one another"):
            type_of(schema)
