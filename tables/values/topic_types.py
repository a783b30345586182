"""The type of the values of a topic: given by the caller, or taken from a sample of the values.

A sample of plain JSON becomes a JSON Schema, and `json_types.py` says which columns that has:

| met in the sample | in the schema | column |
|---|---|---|
| integers | integer | long |
| numbers, some with a fraction or an exponent | number | double; none if a double does not hold an integer of them |
| true and false; texts | boolean; string | boolean; string, also of a text that looks like a time |
| objects | object | struct; null in a value that lacks the property |
| objects with more than `PROPERTIES_MAX` names | object, `additionalProperties` | map, if its values have one type |
| arrays | array | list, if its elements have one type |
| null beside another type | that type, and null | that of the other type |
| several types; nulls or empty arrays alone | {} | none: their JSON is in `_additional_properties` |
| an integer beyond 64 bits | {} | none, as well |

For framed values the type is merged from the schemas that the sample names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.refusals import Refused
from moldau.tables.values.bounds import parse_json
from moldau.tables.values.decoders import FramedValueDecoder
from moldau.tables.values.frames import ID_MAGIC, message_path, split_frame
from moldau.tables.values.registry import Schema, SchemaSource, ValueNotDecoded
from moldau.tables.values.value_types import TypesDiffer, merged_type, type_of

GivenSchema: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | pa.DataType"
"""A schema that the caller gives: `sample`, the path of a file with a JSON Schema, a JSON Schema, or an Arrow type."""
SAMPLE: Final = "sample"
SAMPLE_ROWS: Final = 10_000
PROPERTIES_MAX: Final = 200
"""The most property names of the objects at one place of a sample. If there are more, the names are taken for the keys
of a map."""
INT64: Final = range(-(1 << 63), 1 << 63)


class NoSample(Refused):
    """The values of a sample do not determine a type."""


def given_type(schema: GivenSchema) -> pa.DataType:
    """Return the Arrow type for a schema that the caller gives. Raises `Refused`."""
    if isinstance(schema, pa.DataType):
        return schema
    name, text = "schema", b""
    if isinstance(schema, Mapping):
        text = json.dumps(schema).encode()
    else:
        name = f"schema {os.fspath(schema)}"
        try:
            text = Path(schema).read_bytes()
        except OSError as problem:
            raise Refused(f"{name}: {problem.strerror}; it is `{SAMPLE}`, or a file with a JSON Schema") from None
    try:
        return type_of(Schema("JSON", text)).type
    except ValueNotDecoded as problem:
        raise Refused(f"{name}: {problem}") from None


def sampled_type(values: Iterable[bytes], source: SchemaSource | None) -> pa.DataType:
    """Return the Arrow type of the values in a sample. `source`: the schemas of framed values; None means plain JSON.
    Values that cannot be decoded are ignored. Raises `NoSample`, `Refused`, and what `FramedValueDecoder.decoder`
    raises."""
    return given_type(json_schema_of(values)) if source is None else _type_of_framed(values, source)


def json_schema_of(values: Iterable[bytes]) -> dict[str, Any]:
    """Return a JSON Schema that fits the values of a sample, by the table in the docstring of the module. Raises
    `NoSample`."""
    seen, count, last = SampleSummary(), 0, b""
    for value in values:
        count += 1
        try:
            seen.add(parse_json(value))
        except ValueError:  # it is not JSON, or nested too deeply
            last = value
    found = seen.schema()
    if "type" in found:
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
    if seen.kinds - {"null"}:
        raise NoSample(f"schema: the values are of several types of JSON: {', '.join(sorted(seen.kinds))}")
    if not count:
        raise NoSample("schema: there is no value to take a sample of")
    hint = "; a schema registry has framed it, see registry" if last[:1] == bytes([ID_MAGIC]) else ""
    raise NoSample(f"schema: none of {count:,} values gives a type: they are null or no JSON{hint}")


def _type_of_framed(values: Iterable[bytes], source: SchemaSource) -> pa.DataType:
    known = FramedValueDecoder(source)
    found: pa.DataType | None = None
    met, count = set(), 0
    problem: Exception | str = "it has no value"
    for value in values:
        count += 1
        try:
            framed = split_frame(value)
            schema_id, schema = framed.schema_id, known.decoder(framed.schema_id).schema
            path = tuple(message_path(framed.of_kind(schema.kind))[0]) if schema.kind == "PROTOBUF" else ()
            if (schema_id, path) in met:
                continue
            met.add((schema_id, path))
            of_value = type_of(schema, path).type
        except ValueNotDecoded as not_decoded:
            problem = not_decoded
            continue
        try:
            found = of_value if found is None else merged_type(found, of_value)
        except TypesDiffer as differ:
            raise Refused(f"schema: no column holds the values of schema {schema_id} too: {differ}") from None
    if found is None:
        raise NoSample(f"schema: the sample of {count:,} values gives no type: {problem}")
    return found


class SampleSummary:
    """A summary of the values of a sample at one place: the whole value, a property, or the elements of an array."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        """The types of the values, by their names in JSON Schema. An integer beyond 64 bits has a name of its own,
        which is none of JSON Schema's."""
        self._properties: dict[str, SampleSummary] | None = {}
        """The summaries of the properties of objects, by name; None if there were too many names."""
        self._elements: SampleSummary | None = None
        """The summary of the elements of arrays, and of the properties of objects with too many names."""
        self._fits_double = True
        """Whether a double represents each integer exactly."""

    def add(self, value: Any) -> None:
        if isinstance(value, dict):
            self.kinds.add("object")
            self._add_object(value)
        elif isinstance(value, list):
            self.kinds.add("array")
            self._elements = self._elements or SampleSummary()
            for each in value:
                self._elements.add(each)
        elif isinstance(value, bool) or value is None:
            self.kinds.add("null" if value is None else "boolean")
        elif isinstance(value, int):
            self.kinds.add("integer" if value in INT64 else "beyond 64 bits")
            self._fits_double &= abs(value) <= 1 << 53
        else:
            self.kinds.add("string" if isinstance(value, str) else "number")

    def _add_object(self, value: Mapping[str, Any]) -> None:
        if self._properties is not None:
            for name, each in value.items():
                self._properties.setdefault(name, SampleSummary()).add(each)
            if len(self._properties) <= PROPERTIES_MAX:
                return
            for seen in self._properties.values():
                self._elements = seen if self._elements is None else self._elements.merged_with(seen)
            self._properties = None
            return
        for each in value.values():
            self._elements = self._elements or SampleSummary()
            self._elements.add(each)

    def merged_with(self, other: SampleSummary) -> SampleSummary:
        """Return the summary of the values of this place and of another one together."""
        both = SampleSummary()
        both.kinds = self.kinds | other.kinds
        both._fits_double = self._fits_double and other._fits_double
        inner = [each for each in (self._elements, other._elements) if each is not None]
        if self._properties is None or other._properties is None:
            both._properties = None
            inner += [each for part in (self, other) for each in (part._properties or {}).values()]
        else:
            both._properties = dict(self._properties)
            for name, each in other._properties.items():
                met = both._properties.get(name)
                both._properties[name] = each if met is None else met.merged_with(each)
        for each in inner:
            both._elements = each if both._elements is None else both._elements.merged_with(each)
        return both

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values that were added; {} if they have no single type."""
        kinds = self.kinds - {"null"}
        if kinds == {"integer", "number"} and self._fits_double:
            kinds = {"number"}
        if len(kinds) != 1 or "beyond 64 bits" in kinds:
            return {}
        (kind,) = kinds
        found: dict[str, Any] = {"type": [kind, "null"] if "null" in self.kinds else kind}
        of_elements = {} if self._elements is None else self._elements.schema()
        if kind == "array":
            found["items"] = of_elements
        elif self._properties is None:
            found |= {"additionalProperties": of_elements} if kind == "object" else {}
        elif kind == "object":
            found["properties"] = {name: each.schema() for name, each in self._properties.items()}
        return found
