"""Random schemas of Avro, Protobuf and JSON, and random values of them with the bytes that a producer would write.

It needs Hypothesis, fastavro and protobuf.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import fastavro  # type: ignore[import-not-found,import-untyped,unused-ignore]
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped,unused-ignore]
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False),
    "string": TEXT,
    "bytes": st.binary(max_size=6),
    "enum": st.sampled_from(["A", "B"]),
}


class Kind(NamedTuple):
    """A type: a leaf, or one of list, map, optional and record over others."""

    name: str
    inner: Any = None
    """The type within, or the types of the fields of a record by name."""


class Made(NamedTuple):
    """A schema as a file of a directory of schemas, and values of it with their payloads."""

    suffix: str
    schema: bytes
    values: list[tuple[Any, bytes]]


def kinds(*leaves: str) -> st.SearchStrategy[Kind]:
    """Any nesting. An optional type is not within another."""

    def wider(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        maybe = st.one_of(
            inner, inner.filter(lambda each: each.name != "optional").map(lambda each: Kind("optional", each))
        )
        return st.one_of(
            st.builds(Kind, st.just("list"), maybe),
            st.builds(Kind, st.just("map"), maybe),
            st.builds(Kind, st.just("record"), st.dictionaries(st.sampled_from("abcd"), maybe, min_size=1, max_size=4)),
        )

    return st.recursive(st.sampled_from(leaves).map(Kind), wider, max_leaves=8)


def value_of(kind: Kind) -> st.SearchStrategy[Any]:
    if kind.name == "optional":
        return st.none() | value_of(kind.inner)
    if kind.name == "list":
        return st.lists(value_of(kind.inner), max_size=3)
    if kind.name == "map":
        return st.dictionaries(TEXT, value_of(kind.inner), max_size=2)
    if kind.name == "record":
        return st.fixed_dictionaries({name: value_of(each) for name, each in kind.inner.items()})
    return LEAVES[kind.name]


def in_column(kind: Kind, value: Any) -> Any:
    """What the column gives for a value as it was made."""
    if value is None:
        return None
    if kind.name == "optional":
        return in_column(kind.inner, value)
    if kind.name == "list":
        return [in_column(kind.inner, each) for each in value]
    if kind.name == "map":
        return [(key, in_column(kind.inner, each)) for key, each in value.items()]
    if kind.name == "record":
        return {name: in_column(each, value[name]) for name, each in kind.inner.items()}
    return value


# Avro


def avro_of(kind: Kind, count: list[int]) -> Any:
    """The schema; named types are numbered."""
    if kind.name == "optional":
        return ["null", avro_of(kind.inner, count)]
    if kind.name == "list":
        return {"type": "array", "items": avro_of(kind.inner, count)}
    if kind.name == "map":
        return {"type": "map", "values": avro_of(kind.inner, count)}
    count[0] += 1
    name = f"com.example.T{count[0]}"
    if kind.name == "record":
        fields = [{"name": each, "type": avro_of(inner, count)} for each, inner in kind.inner.items()]
        return {"type": "record", "name": name, "fields": fields}
    if kind.name == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}
    return {"bool": "boolean"}.get(kind.name, kind.name)


def made_of_avro(kind: Kind, values: list[Any]) -> Made:
    """Bytes that are a whole value have no length before them in a payload."""
    schema = avro_of(kind, [0])
    payloads = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        payloads.append((in_column(kind, value), value if kind.name == "bytes" else out.getvalue()))
    return Made("avsc", json.dumps(schema).encode(), payloads)


# JSON


def json_of(kind: Kind) -> dict[str, Any]:
    if kind.name == "optional":
        return {"anyOf": [{"type": "null"}, json_of(kind.inner)]}
    if kind.name == "list":
        return {"type": "array", "items": json_of(kind.inner)}
    if kind.name == "map":
        return {"type": "object", "additionalProperties": json_of(kind.inner)}
    if kind.name == "record":
        fields = {name: json_of(each) for name, each in kind.inner.items()}
        return {"type": "object", "properties": fields, "additionalProperties": False}
    named = {"bool": "boolean", "long": "integer", "double": "number", "string": "string"}
    return {"enum": ["A", "B"]} if kind.name == "enum" else {"type": named[kind.name]}


def made_of_json(kind: Kind, values: list[Any]) -> Made:
    payloads = [(in_column(kind, value), json.dumps(value).encode()) for value in values]
    return Made("json", json.dumps(json_of(kind)).encode(), payloads)


# Protobuf: a message has no lists of lists, and no list or map that is null


def messages(depth: int = 2) -> st.SearchStrategy[Kind]:
    leaf = st.sampled_from([*LEAVES]).map(Kind)
    one = leaf if depth == 0 else st.one_of(leaf, st.deferred(lambda: messages(depth - 1)))
    field = st.one_of(
        one.map(lambda each: Kind("optional", each)),
        one.map(lambda each: Kind("list", each)),
        one.map(lambda each: Kind("map", each)),
    )
    return st.builds(Kind, st.just("record"), st.dictionaries(st.sampled_from("abcd"), field, min_size=1, max_size=4))


NUMBERS = {"double": 1, "long": 3, "int": 5, "bool": 8, "string": 9, "bytes": 12}


def fill_message(message: Any, path: str, kind: Kind) -> None:
    """Give a DescriptorProto the fields of a record."""
    for number, (name, field) in enumerate(kind.inner.items(), 1):
        entry = None
        if field.name == "map":
            entry = message.nested_type.add(name=f"{name.upper()}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=9, label=1)
            made = message.field.add(name=name, number=number, label=3, type=11, type_name=f"{path}.{entry.name}")
            made = entry.field.add(name="value", number=2, label=1)
        else:
            made = message.field.add(name=name, number=number, label=3 if field.name == "list" else 1)
        if field.inner.name == "record":
            inner = message.nested_type.add(name=f"M{name}")
            made.type, made.type_name = 11, f"{path}.M{name}"
            fill_message(inner, f"{path}.M{name}", field.inner)
        elif field.inner.name == "enum":
            made.type, made.type_name = 14, ".p.E"
        else:
            made.type = NUMBERS[field.inner.name]
            if field.name == "optional":
                made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}")


def set_fields(message: Any, kind: Kind, value: dict[str, Any]) -> None:
    for name, field in kind.inner.items():
        given = value[name]
        is_message = field.inner.name == "record"
        to_wire: Callable[[Any], Any] = (
            (lambda each: "AB".index(each)) if field.inner.name == "enum" else lambda each: each
        )
        if field.name == "list":
            for each in given:
                if is_message:
                    set_fields(getattr(message, name).add(), field.inner, each)
                else:
                    getattr(message, name).append(to_wire(each))
        elif field.name == "map":
            for key, each in given.items():
                if is_message:
                    set_fields(getattr(message, name)[key], field.inner, each)
                else:
                    getattr(message, name)[key] = to_wire(each)
        elif given is not None and is_message:
            getattr(message, name).SetInParent()
            set_fields(getattr(message, name), field.inner, given)
        elif given is not None:
            setattr(message, name, to_wire(given))


def with_enums_present(kind: Kind, value: Any) -> Any:
    """An enum without presence is its first value if it is absent; the keys of maps come in their order."""
    if kind.name == "optional":
        if value is None and kind.inner.name == "enum":
            return "A"
        return None if value is None else with_enums_present(kind.inner, value)
    if kind.name == "list":
        return [with_enums_present(kind.inner, each) for each in value]
    if kind.name == "map":
        return {key: with_enums_present(kind.inner, value[key]) for key in sorted(value)}
    if kind.name == "record":
        return {name: with_enums_present(each, value[name]) for name, each in kind.inner.items()}
    return value


def made_of_protobuf(kind: Kind, values: list[Any]) -> Made:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    enum = file.enum_type.add(name="E")
    for number, name in enumerate("AB"):
        enum.value.add(name=name, number=number)
    fill_message(file.message_type.add(name="M"), ".p.M", kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    built = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))
    payloads = []
    for value in values:
        message = built()
        set_fields(message, kind, value)
        payloads.append((in_column(kind, with_enums_present(kind, value)), b"\0" + message.SerializeToString()))
    return Made("desc", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), payloads)


@st.composite
def made(draw: st.DrawFn) -> Made:
    make, kind = draw(
        st.one_of(
            st.tuples(st.just(made_of_avro), kinds(*LEAVES)),
            st.tuples(st.just(made_of_json), kinds("bool", "long", "double", "string", "enum")),
            st.tuples(st.just(made_of_protobuf), messages()),
        )
    )
    found: Made = make(kind, draw(st.lists(value_of(kind), min_size=1, max_size=4)))
    return found
