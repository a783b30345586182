"""Decoded values as those of a column of Arrow.

`pyarrow.array` takes more than it can hold: it makes 1 of 1.5 for a column of integers, 1.0 of true, and a list of
letters of a string (findings/pyarrow_array_of_another_type.sh). Here a value of another type is refused, with the path
of the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from typing import Any, NoReturn

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.json_types import OTHERS
from moldau.tables.values.protobuf import JsonValue
from moldau.tables.values.registry import ValueNotDecoded

Shape = Callable[[Any], Any]


def shape_of(kind: pa.DataType, path: str = "value", *, selects: bool = False) -> Shape:
    """A function that gives a decoded value the form that `pyarrow.array` takes for a type. It raises `ValueNotDecoded`
    for a value that the type does not hold, and for properties that no field holds. If it `selects`, it omits these.
    """
    inner = _inner_shape(kind, path, selects)

    def shape(value: Any) -> Any:
        return None if value is None else inner(value)

    return shape


def _inner_shape(kind: pa.DataType, path: str, selects: bool) -> Shape:
    if pa.types.is_struct(kind):
        return _struct(kind, path, selects)
    if pa.types.is_map(kind):
        return _map(kind, path, selects)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list(kind, path, selects)
    if pa.types.is_boolean(kind):
        return lambda value: True if value == {} else _of_types(value, path, bool)
    if pa.types.is_integer(kind):
        return lambda value: _integer(value, path)
    if pa.types.is_floating(kind):
        return lambda value: _of_types(value, path, float, int)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: _text(value, path)
    return lambda value: value


def _struct(kind: pa.DataType, path: str, selects: bool) -> Shape:
    fields = [
        (each.name, shape_of(each.type, f"{path}.{each.name}", selects=selects))
        for each in kind
        if selects or each.name != OTHERS
    ]
    names, has_others = {name for name, _ in fields}, kind.get_field_index(OTHERS) >= 0

    def shape(value: Any) -> dict[str, Any]:
        value = _unwrapped(value)
        if type(value) is not dict:
            _refuse(value, path)
        found = {name: of_field(value.get(name)) for name, of_field in fields}
        if selects:
            return found
        if has_others:
            others = {name: each for name, each in value.items() if name not in names}
            found[OTHERS] = json.dumps(others, ensure_ascii=False) if others else None
        elif not names.issuperset(value):
            _refuse_others(value, names, path)
        return found

    return shape


def _refuse_others(value: Mapping[str, Any], names: Set[str], path: str) -> None:
    """A property that is null says no more than a column that is not there."""
    for name, each in value.items():
        if name not in names and each is not None:
            raise ValueNotDecoded(f"{path}.{name} is a property that the schema does not allow")


def _map(kind: pa.DataType, path: str, selects: bool) -> Shape:
    of_key, of_item = (
        shape_of(kind.key_type, f"{path}.key", selects=selects),
        shape_of(kind.item_type, f"{path}.value", selects=selects),
    )

    def shape(value: Any) -> list[tuple[Any, Any]]:
        value = _unwrapped(value)
        if type(value) not in (dict, list):
            _refuse(value, path)
        pairs: Any = value.items() if type(value) is dict else value
        return [(of_key(key), of_item(item)) for key, item in pairs]

    return shape


def _list(kind: pa.DataType, path: str, selects: bool) -> Shape:
    of_one = shape_of(kind.value_type, f"{path}.element", selects=selects)

    def shape(value: Any) -> list[Any]:
        value = _unwrapped(value)
        if type(value) is not list:
            _refuse(value, path)
        return [of_one(each) for each in value]

    return shape


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, JsonValue) else value


def _integer(value: Any, path: str) -> int:
    value = _unwrapped(value)
    if type(value) is float and value.is_integer():  # 1.0 is an integer of JSON
        return int(value)
    return int(_of_types(value, path, int))


def _of_types(value: Any, path: str, *kinds: type) -> Any:
    value = _unwrapped(value)
    if type(value) not in kinds:
        _refuse(value, path)
    return value


def _text(value: Any, path: str) -> str:
    if isinstance(value, JsonValue):
        return json.dumps(value.value, ensure_ascii=False)
    return str(_of_types(value, path, str))


def _refuse(value: object, path: str) -> NoReturn:
    shown = json.dumps(value, default=str, ensure_ascii=False)[:60]
    raise ValueNotDecoded(f"the value does not fit the column: {path} does not hold {shown}")
