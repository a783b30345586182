"""JSON of Kafka Connect's JsonConverter with its schema part (`schemas.enable`): {"schema": …, "payload": …}.

| Connect | Arrow | in the JSON |
|---|---|---|
| int8, int16, int32; int64 | int32; int64 | a number |
| float; double | float32; float64 | a number; NaN, Infinity and -Infinity as text |
| boolean; string | bool; string | |
| bytes | binary | base64 |
| struct; array | struct; list | an object; an array |
| map | map | an object if the keys are strings, else an array of pairs |
| `org.apache.kafka.connect.data.Decimal` | decimal128 | base64 of the unscaled number, or a number |
| `…Date`; `…Time`; `…Timestamp` | date32; time64[us]; timestamp[us, UTC] | days; milliseconds |

A name of another logical type (`io.debezium.time.…`) is ignored: the value is that of the type below it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.avro import DIGITS_MAX
from moldau.tables.values.converters import ConvertedType, Converter
from moldau.tables.values.exact_json import ExactNumber, plain_value
from moldau.tables.values.registry import ValueNotDecoded
from moldau.tables.values.value_types import DEPTH_MAX, TypeCount, list_of, struct_of

LOGICAL: Final = "org.apache.kafka.connect.data."
DAY_MS: Final = 86_400_000
_NUMBERS: Final = {"NaN", "Infinity", "-Infinity"}


def connect_type(schema: Any) -> ConvertedType:
    """Return the Arrow type and the conversion for a schema part. Raises `ValueNotDecoded`."""
    try:
        return _Builder().built(schema, "value", 0)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        if isinstance(problem, ValueNotDecoded):
            raise
        raise ValueNotDecoded(f"the schema part cannot be read: {type(problem).__name__}: {problem}") from None


class _Builder:
    def __init__(self) -> None:
        self._count = TypeCount()

    def built(self, schema: Mapping[str, Any], path: str, depth: int) -> ConvertedType:
        self._count.count_type()
        if depth > DEPTH_MAX:
            raise ValueNotDecoded("the schema part is nested too deeply")
        kind, name = schema["type"], schema.get("name")
        if kind == "struct":
            return self._struct(schema, path, depth)
        if kind == "array":
            inner = self.built(schema["items"], f"{path}.element", depth + 1)
            return ConvertedType(list_of(inner.type), _each(inner.convert, path))
        if kind == "map":
            return self._map(schema, path, depth)
        if kind == "bytes" and name == f"{LOGICAL}Decimal":
            return _decimal(schema, path)
        found = _LOGICAL.get((kind, name)) or _PLAIN[kind]
        return ConvertedType(found[0], _leaf(found[1], path))

    def _struct(self, schema: Mapping[str, Any], path: str, depth: int) -> ConvertedType:
        parts = {
            each["field"]: self.built(each, f"{path}.{each['field']}", depth + 1) for each in schema.get("fields", [])
        }
        kind = struct_of({name: part.type for name, part in parts.items()})

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                _refuse(value, path)
            return {name: _converted(part.convert, value.get(name)) for name, part in parts.items()} if parts else True

        return ConvertedType(kind, convert)

    def _map(self, schema: Mapping[str, Any], path: str, depth: int) -> ConvertedType:
        key = self.built(schema["keys"], f"{path}.key", depth + 1)
        item = self.built(schema["values"], f"{path}.value", depth + 1)

        def convert(value: Any) -> Any:
            if not isinstance(value, dict | list):
                _refuse(value, path)
            pairs = value.items() if isinstance(value, dict) else value
            return [(key.convert(name), _converted(item.convert, each)) for name, each in pairs]

        return ConvertedType(pa.map_(key.type, item.type), convert)


def _converted(convert: Converter, value: Any) -> Any:
    return None if value is None else convert(value)


def _each(convert: Converter, path: str) -> Converter:
    def of_list(value: Any) -> Any:
        if not isinstance(value, list):
            _refuse(value, path)
        return [_converted(convert, each) for each in value]

    return of_list


def _leaf(convert_value: Converter, path: str) -> Converter:
    def convert(value: Any) -> Any:
        try:
            return convert_value(value)
        except (TypeError, ValueError, ArithmeticError, binascii.Error):
            _refuse(value, path)

    return convert


def _refuse(value: Any, path: str) -> Any:
    raise ValueNotDecoded(
        f"the value does not fit its schema part: {path} does not hold {str(plain_value(value))[:60]!r}"
    )


def _of(*kinds: type) -> Converter:
    """Make a conversion that accepts only values of exactly these types, so that `True` is not an int."""

    def convert(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError
        return value

    return convert


def _float(value: Any) -> float:
    if isinstance(value, str) and value in _NUMBERS:
        return float(value)
    return float(_of(int, float)(plain_value(value)))


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_of(str)(value), validate=True)


def _date(value: Any) -> date:
    return date(1970, 1, 1) + timedelta(days=_of(int)(value))


def _time(value: Any) -> time:
    if not 0 <= _of(int)(value) < DAY_MS:
        raise ValueError
    return (datetime(1970, 1, 1) + timedelta(milliseconds=value)).time()


def _timestamp(value: Any) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=_of(int)(value))


def _decimal(schema: Mapping[str, Any], path: str) -> ConvertedType:
    parameters = schema.get("parameters") or {}
    scale = int(parameters["scale"])
    precision = int(parameters.get("connect.decimal.precision", DIGITS_MAX))
    is_held = 0 <= scale <= precision <= DIGITS_MAX
    exact = Context(precision, traps=[Inexact, InvalidOperation]) if is_held else None

    def convert(value: Any) -> Any:
        if isinstance(value, ExactNumber):
            found = Decimal(value.digits)
        elif isinstance(value, str):
            unscaled = int.from_bytes(_bytes(value), "big", signed=True)
            found = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
        else:
            found = Decimal(repr(_of(int, float)(value)))
        return str(found) if exact is None else found.quantize(Decimal((0, (1,), -scale)), context=exact)

    return ConvertedType(pa.decimal128(precision, scale) if is_held else pa.string(), _leaf(convert, path))


_PLAIN: Final[Mapping[str, tuple[pa.DataType, Converter]]] = {
    "int8": (pa.int32(), _of(int)),
    "int16": (pa.int32(), _of(int)),
    "int32": (pa.int32(), _of(int)),
    "int64": (pa.int64(), _of(int)),
    "float": (pa.float32(), _float),
    "double": (pa.float64(), _float),
    "boolean": (pa.bool_(), _of(bool)),
    "string": (pa.string(), _of(str)),
    "bytes": (pa.binary(), _bytes),
}
_LOGICAL: Final[Mapping[tuple[str, Any], tuple[pa.DataType, Converter]]] = {
    ("int32", f"{LOGICAL}Date"): (pa.date32(), _date),
    ("int32", f"{LOGICAL}Time"): (pa.time64("us"), _time),
    ("int64", f"{LOGICAL}Timestamp"): (pa.timestamp("us", "UTC"), _timestamp),
}
