"""Flat tables: each field of a struct becomes a column with a name in lower case, for catalogs that refuse other names.

| field | column |
|---|---|
| id, customer.Name of a value | id, customer_name |
| id of a key of several fields | key_id |
| a field of a value with a name that a table has already (offset, key_id) | value_offset, value_key_id |
| a value without fields | value |

Lists and maps stay columns, with field names in lower case inside of them. A struct that is null has null columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.lake.keys import KEY, PREFIX
from moldau.tables.values.registry import ValueNotDecoded
from moldau.tables.values.value_types import list_of

RESERVED_COLUMNS: Final = (KEY, "partition", "offset", "timestamp", "headers", "value")
"""The names of the columns that each table has."""
Change = Callable[[Any], Any]


class _Leaf(NamedTuple):
    path: Sequence[str]
    name: str
    type: pa.DataType
    change: Change | None


def flatten_type(kind: pa.DataType, column: str) -> tuple[pa.DataType, Change]:
    """Return the struct of the flat columns for a type, and a function that converts a value of the type into a value
    of this struct. `column` is `key` or `value`. Raises `ValueNotDecoded` if two fields would become one column."""
    found = list(_leaves(kind, (), column))
    names = [each.name for each in found]
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise ValueNotDecoded(f"two fields of the {column} would be the column {twice[0]} of a flat table")

    def flat(value: Any) -> dict[str, Any] | None:
        return None if value is None else {each.name: _at(value, each) for each in found}

    return pa.struct([pa.field(each.name, each.type) for each in found]), flat


def _leaves(kind: pa.DataType, path: Sequence[str], column: str) -> Iterator[_Leaf]:
    if pa.types.is_struct(kind):
        for each in kind:
            yield from _leaves(each.type, (*path, each.name), column)
        return
    renamed, change = _renamed(kind)
    yield _Leaf(path, column_name(path, column), renamed, change)


def column_name(path: Sequence[str], column: str) -> str:
    """The name of the flat column for the field at a path of the key or the value (`column`)."""
    if not path:
        return column
    joined = "_".join(map(_lower, path))
    if column == KEY:
        return f"{PREFIX}{joined}"
    return f"value_{joined}" if joined in RESERVED_COLUMNS or joined.startswith(PREFIX) else joined


def _lower(name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def _at(value: Any, leaf: _Leaf) -> Any:
    for name in leaf.path:
        if value is None:
            return None
        value = value.get(name)
    return value if leaf.change is None or value is None else leaf.change(value)


def _renamed(kind: pa.DataType) -> tuple[pa.DataType, Change | None]:
    """Rename the struct fields in the type of a column that stays a list or a map. The new names are in lower case, and
    characters other than a to z, digits and `_` are replaced by `_`.

    Returns the new type, and the function that renames the fields in a value of the old type; None instead of the
    function if the type contains no struct. Raises `ValueNotDecoded` if two fields of a struct would have the same
    name.
    """
    if pa.types.is_struct(kind):
        parts = [(each.name, _lower(each.name), *_renamed(each.type)) for each in kind]
        if len({name for _, name, _, _ in parts}) < len(parts):
            raise ValueNotDecoded("two fields within a list or a map would have one name in a flat table")

        def of_struct(value: Any) -> Any:
            return {name: _changed(change, value.get(given)) for given, name, _, change in parts}

        return pa.struct([pa.field(name, inner) for _, name, inner, _ in parts]), of_struct
    if pa.types.is_list(kind):
        inner, change = _renamed(kind.value_type)
        return list_of(inner), change and (lambda value: [_changed(change, each) for each in value])
    if pa.types.is_map(kind):
        inner, change = _renamed(kind.item_type)
        return pa.map_(kind.key_type, inner), change and (lambda value: _items(change, value))
    return kind, None


def _items(change: Change, value: Any) -> list[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else value
    return [(key, _changed(change, each)) for key, each in pairs]


def _changed(change: Change | None, value: Any) -> Any:
    return value if change is None or value is None else change(value)
