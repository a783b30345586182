"""The Arrow type of decoded values for a JSON schema.

| part of a schema | type |
|---|---|
| integer, number, boolean, string | long, double, boolean, string |
| `enum`, `const` without a type | the type of their values |
| `anyOf`, `oneOf` | one type that holds the values of all parts besides null, if there is one |
| `allOf`, `$ref` | one type for all parts; `$ref` within the schema, and to the references that a registry names |
| object with properties | a struct |
| object with `additionalProperties` of one type alone | a map |
| array with `items` of one type | a list |

A property of any other form has no column of its own. Neither has a property that contains itself, or whose name
differs from another one by case alone. The struct of an object has a further column, `OTHERS`, with the JSON of these
properties and of those that the schema does not name. A closed object (`"additionalProperties": false`) whose
properties have columns has no such column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.bounds import parse_json
from moldau.tables.values.registry import Schema, ValueNotDecoded
from moldau.tables.values.value_types import (
    DEPTH_MAX,
    EMPTY,
    ColumnType,
    TypeCount,
    TypesDiffer,
    ambiguous_paths,
    list_of,
    merged_type,
)

OTHERS: Final = "_additional_properties"
"""The name of a struct's column with the JSON of all other properties of the object. It is null if the object has no
others."""
_TYPES: Final = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
_OBJECT_WORDS: Final = ("properties", "additionalProperties", "patternProperties", "required")


def json_type(schema: Schema) -> ColumnType:
    """Return the Arrow type of the values of a JSON schema. Raises `ValueNotDecoded` if they have no single type."""
    documents = {"": parse_json(schema.text)} | {each.name: parse_json(each.text) for each in schema.references}
    found = _Builder(documents).type(documents[""], "", ())
    if found is None:
        raise ValueNotDecoded("the schema gives no single type, and a table has no column of such values")
    return ColumnType(found)


class _Builder:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        """The parsed documents: the schema itself under an empty name, and each schema that it refers to under the name
        of the reference."""
        self._count = TypeCount()

    def type(self, part: Any, document: str, above: tuple[tuple[str, str], ...], depth: int = 0) -> pa.DataType | None:
        """Return the type for a part of a document; None if its values have no single type. `above`: the `$ref`s that
        lead to this part."""
        self._count.count_type()
        if not isinstance(part, Mapping) or depth > DEPTH_MAX:
            return None
        found = [self._own(part, document, above, depth)]
        reference = part.get("$ref", part.get("$dynamicRef"))
        if isinstance(reference, str):
            name, fragment = self._place(reference, document)
            if (name, fragment) in above or len(above) > DEPTH_MAX:
                return None
            inner = self._referred(name, fragment)
            found.append(self.type(inner, name, (*above, (name, fragment)), depth + 1))
        found += [self.type(each, document, above, depth + 1) for each in _parts(part, "allOf")]
        for word in ("anyOf", "oneOf"):
            choices = [each for each in _parts(part, word) if not _is_null(each)]
            kinds = [self.type(each, document, above, depth + 1) for each in choices]
            found.append(None if None in kinds else _joined(kinds))
        return _joined(each for each in found if each is not None)

    def _own(self, part: Mapping[str, Any], document: str, above: Any, depth: int) -> pa.DataType | None:
        """Return the type that a part states itself, without the parts that it refers to; None if it states none."""
        kind = part.get("type")
        if isinstance(kind, list):
            kinds = [each for each in kind if each != "null"]
            kind = kinds[0] if len(kinds) == 1 else "several"
        if kind is None and ("enum" in part or "const" in part):
            return _type_of_values(part["enum"] if "enum" in part else [part["const"]])
        if kind in _TYPES:
            return _TYPES[kind]
        if kind == "array" or (kind is None and "items" in part):
            inner = None if "prefixItems" in part else self.type(part.get("items"), document, above, depth + 1)
            return None if inner is None else list_of(inner)
        if kind == "object" or (kind is None and any(word in part for word in _OBJECT_WORDS[:3])):
            return self._object(part, document, above, depth)
        return None

    def _object(self, part: Mapping[str, Any], document: str, above: Any, depth: int) -> pa.DataType:
        named = part.get("properties", {})
        others = part.get("additionalProperties", part.get("unevaluatedProperties", True))
        if not named and isinstance(others, Mapping) and "patternProperties" not in part:
            inner = self.type(others, document, above, depth + 1)
            if inner is not None:
                return pa.map_(pa.string(), inner)
        fields = {name: self.type(each, document, above, depth + 1) for name, each in named.items()}
        times = Counter(name.casefold() for name in [*named, OTHERS])
        kept = {
            name: kind for name, kind in fields.items() if kind is not None and name and times[name.casefold()] == 1
        }
        for name in ambiguous_paths(pa.struct(list(kept.items()))):
            del kept[name]
        if others is not False or len(kept) < len(fields) or "patternProperties" in part:
            kept[OTHERS] = pa.string()
        return pa.struct(list(kept.items())) if kept else EMPTY

    def _place(self, reference: str, document: str) -> tuple[str, str]:
        """Resolve a `$ref` into the name of a document and the fragment in it. Raises `ValueNotDecoded`."""
        name, _, fragment = reference.partition("#")
        if not name:
            return document, unquote(fragment)
        if name not in self._documents:
            own = self._documents[document]
            if isinstance(own, Mapping) and own.get("$id", own.get("id")) == name:
                return document, unquote(fragment)
            raise ValueNotDecoded(f"the schema refers to {name}, which the registry does not name among its references")
        return name, unquote(fragment)

    def _referred(self, document: str, fragment: str) -> Any:
        """Return the part of a document at a fragment, which is a JSON pointer or an anchor. Raises
        `ValueNotDecoded`.
        """
        found = self._documents[document]
        if fragment and not fragment.startswith("/"):
            return _anchored(found, fragment)
        for step in fragment.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            inner = found.get(step) if isinstance(found, Mapping) else None
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                inner = found[int(step)]
            if inner is None:
                raise ValueNotDecoded(f"the schema refers to #{fragment}, which it does not have")
            found = inner
        return found


def _anchored(document: Any, anchor: str) -> Any:
    left = [document]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            if anchor in (each.get("$anchor"), each.get("$dynamicAnchor")) or each.get("$id") == f"#{anchor}":
                return each
            left += each.values()
        elif isinstance(each, list):
            left += each
    raise ValueNotDecoded(f"the schema refers to #{anchor}, which it does not have")


def _parts(part: Mapping[str, Any], word: str) -> list[Any]:
    found = part.get(word)
    return found if isinstance(found, list) else []


def _is_null(part: Any) -> bool:
    """Whether null is the only value that a part allows."""
    if not isinstance(part, Mapping):
        return False
    only_null: list[object] = [None]
    return part.get("type") in ("null", ["null"]) or part.get("enum") == only_null or part.get("const", "") is None


def _type_of_values(values: Any) -> pa.DataType | None:
    """Return the type of JSON values, of which null is ignored; None if they have no single type."""
    kinds = {type(each) for each in values if each is not None} if isinstance(values, list) else set()
    if kinds == {int, float}:
        kinds = {float}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    name = names.get(kinds.pop()) if len(kinds) == 1 else None
    return None if name is None else _TYPES[name]


def _joined(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds the values of all these types; None if there is no such type."""
    joined = None
    for kind in kinds:
        try:
            joined = kind if joined is None else merged_type(joined, kind)
        except TypesDiffer:
            return None
    return joined
