"""Converts decoded values into the objects that an Arrow column takes.

`pyarrow.array` accepts values that its type cannot hold (findings/pyarrow_array_of_another_type.sh). In a column of
integers it makes 1 of 1.5; in other columns it makes 1.0 of true, a list of letters of a string, a time of a number,
and a day of a time. This module refuses a value of another type, and names the path of the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.exact_json import ExactNumber, exact_text, plain_value
from moldau.tables.values.json_types import OTHERS
from moldau.tables.values.protobuf import JsonValue
from moldau.tables.values.registry import ValueNotDecoded

Converter = Callable[[Any], Any]
EXACT_MAX: Final = 1 << 53
"""The integer below which a double holds every integer exactly."""


class ConvertedType(NamedTuple):
    """An Arrow type for decoded values, and the function that converts a decoded value into the object that Arrow takes
    for the type."""

    type: pa.DataType
    convert: Converter


_TIMES: Final = ((pa.types.is_timestamp, datetime), (pa.types.is_date, date), (pa.types.is_time, time))
"""The Python types of the values of times, by the test of their Arrow type."""
_STEPS_US: Final = {"s": 1_000_000, "ms": 1_000}
"""The microseconds in the units of Arrow's times that are coarser than a microsecond."""


def converter_to(kind: pa.DataType, path: str = "value", *, selects: bool = False) -> Converter:
    """Make a function that converts a decoded value into the form that `pyarrow.array` takes for a type.

    The function raises `ValueNotDecoded` for a value that the type cannot hold, and for properties for which the type
    has no field. With `selects` it omits such properties. `path`: the name of the value in messages.
    """
    if pa.types.is_struct(kind):
        return _struct(kind, path, selects)
    if pa.types.is_map(kind):
        return _map(kind, path, selects)
    if is_any_list(kind):
        return _list(kind, path, selects)
    return _leaf(kind, path)


def is_any_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _leaf_types(kind: pa.DataType) -> Set[type]:
    """Return the Python types whose values a column of a scalar type takes without a conversion. The set is empty if it
    takes all values."""
    if pa.types.is_boolean(kind):
        return {bool, type(None)}
    if pa.types.is_integer(kind):
        return {int, type(None)}
    if pa.types.is_floating(kind):
        return {float, int, type(None)}
    return {str, type(None)} if pa.types.is_string(kind) or pa.types.is_large_string(kind) else set()


def _leaf(kind: pa.DataType, path: str) -> Converter:
    of_time = next((each for is_kind, each in _TIMES if is_kind(kind)), None)
    if of_time is not None:
        return _time(of_time, _STEPS_US.get(getattr(kind, "unit", ""), 1), path)
    taken = _leaf_types(kind)
    if not taken:
        return plain_value

    def convert(value: Any) -> Any:
        return value if type(value) in taken else _other_form(value, taken, path)

    return convert


def _time(of_time: type, step_us: int, path: str) -> Converter:
    """Make a function that takes only times of this Python type that are a multiple of `step_us` (microseconds)."""

    def convert(value: Any) -> Any:
        if value is not None and (type(value) is not of_time or getattr(value, "microsecond", 0) % step_us):
            _refuse(value, path)
        return value

    return convert


def _other_form(value: Any, taken: Set[type], path: str) -> Any:
    """Convert a value, whose Python type is not in `taken`, into one of these types. Raises `ValueNotDecoded` if that
    is not possible."""
    if isinstance(value, JsonValue):
        if str in taken:
            return json.dumps(value.value, ensure_ascii=False)
        value = value.value
    if isinstance(value, ExactNumber) and isfinite(float(value.digits)):
        value = float(value.digits)
    if type(value) in taken:
        return value
    if type(value) is float and int in taken and value.is_integer() and abs(value) < EXACT_MAX:
        return int(value)  # 1.0 is an integer of JSON
    if value == {} and bool in taken:  # a record without fields
        return True
    _refuse(value, path)


def _struct(kind: pa.DataType, path: str, selects: bool) -> Converter:
    fields = [
        (each.name, _leaf_types(each.type), converter_to(each.type, f"{path}.{each.name}", selects=selects))
        for each in kind
        if selects or each.name != OTHERS
    ]
    names, has_others = {name for name, _, _ in fields}, kind.get_field_index(OTHERS) >= 0

    def convert(value: Any) -> dict[str, Any] | None:
        if type(value) is not dict:
            if value is None:
                return None
            value = _held(value, path, dict)
        get = value.get
        found = {
            name: each if type(each := get(name)) in taken else of_field(each)  # most fields are leaves of their type
            for name, taken, of_field in fields
        }
        if selects or value.keys() <= names:
            return found
        if has_others:
            others = {name: each for name, each in value.items() if name not in names}
            found[OTHERS] = exact_text(json.dumps(others, ensure_ascii=False))
        else:
            _refuse_others(value, names, path)
        return found

    return convert


def _refuse_others(value: Mapping[str, Any], names: Set[str], path: str) -> None:
    """Raise `ValueNotDecoded` if a value has a property that is not in `names`. A property that is null is ignored."""
    for name, each in value.items():
        if name not in names and each is not None:
            raise ValueNotDecoded(f"{path}.{name} is a property that the schema does not allow")


def _map(kind: pa.DataType, path: str, selects: bool) -> Converter:
    of_key = converter_to(kind.key_type, f"{path}.key", selects=selects)
    of_item = converter_to(kind.item_type, f"{path}.value", selects=selects)

    def convert(value: Any) -> list[tuple[Any, Any]] | None:
        if value is None:
            return None
        value = _held(value, path, dict, list)
        pairs: Any = value.items() if type(value) is dict else value
        return [(of_key(key), of_item(item)) for key, item in pairs]

    return convert


def _list(kind: pa.DataType, path: str, selects: bool) -> Converter:
    of_one = converter_to(kind.value_type, f"{path}.element", selects=selects)
    taken = _leaf_types(kind.value_type)

    def convert(value: Any) -> list[Any] | None:
        if type(value) is not list:
            if value is None:
                return None
            value = _held(value, path, list)
        elements: list[Any] = value
        if not taken or not set(map(type, elements)) <= taken:
            for at, each in enumerate(elements):  # in place: the elements of a long list are not there twice
                elements[at] = of_one(each)
        return elements

    return convert


def _held(value: Any, path: str, *kinds: type) -> Any:
    """Return the value if it is of one of these types, after replacing a `JsonValue` by its content. Raises
    `ValueNotDecoded` otherwise."""
    value = value.value if isinstance(value, JsonValue) else value
    if type(value) not in kinds:
        _refuse(value, path)
    return value


def _refuse(value: object, path: str) -> NoReturn:
    shown = exact_text(json.dumps(value, default=str, ensure_ascii=False))[:60]
    raise ValueNotDecoded(f"the value does not fit the column: {path} does not hold {shown}")
