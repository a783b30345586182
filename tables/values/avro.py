"""Decodes Avro by its specification 1.12, through fastavro.

fastavro gets a simplified schema: without what decoding does not need (defaults, aliases, documentation), and with
names of this module in place of full names. This module reads these logical types:

| logical type | over | value |
|---|---|---|
| decimal | bytes, fixed | Decimal; text beyond 38 digits, which no column holds |
| big-decimal | bytes | text |
| uuid | string | the string as it is |
| uuid | fixed(16) | text |
| duration | fixed(12) | months, days, millis |
| date, time-millis | int | date, time |
| time-micros | long | time |
| timestamp-millis, timestamp-micros, local-timestamp-millis, local-timestamp-micros | long | datetime |
| timestamp-nanos, local-timestamp-nanos | long | nanoseconds as an integer |

A logical type that is unknown, invalid or over another base is ignored, as the specification asks; fastavro itself does
not ignore it (findings/fastavro_logical_types.sh).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import time
from decimal import Decimal
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from moldau.tables.values.bounds import (
    BIG_DECIMAL,
    DECIMAL,
    DECIMAL_SIZE_MAX,
    LONG_DECIMAL,
    AvroBounds,
    HostileValue,
    parse_json,
    read_zigzag,
    type_of,
)
from moldau.tables.values.registry import Schema, ValueNotDecoded

DIGITS_MAX: Final = 38
"""The most digits of a decimal in a column of Arrow and of Iceberg."""
UUID_TEXT: Final = "moldau-uuid"
DURATION: Final = "moldau-duration"
TIME_MILLIS: Final = "moldau-time-millis"
TIME_MICROS: Final = "moldau-time-micros"
_LOGICAL: Final = {
    ("int", "date", None): "date",
    ("int", "time-millis", None): TIME_MILLIS,
    ("long", "time-micros", None): TIME_MICROS,
    ("long", "timestamp-millis", None): "timestamp-millis",
    ("long", "timestamp-micros", None): "timestamp-micros",
    ("long", "local-timestamp-millis", None): "local-timestamp-millis",
    ("long", "local-timestamp-micros", None): "local-timestamp-micros",
    ("bytes", "big-decimal", None): BIG_DECIMAL,
    ("fixed", "uuid", 16): UUID_TEXT,
    ("fixed", "duration", 12): DURATION,
}
"""The names by which fastavro knows the logical types besides decimals. The key is the base type, the name of the
logical type, and the size if the base type is `fixed`. fastavro itself reads dates and timestamps correctly."""
_NAMED: Final = ("record", "error", "enum", "fixed")
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DURATION: Final = Struct("<III")
DAY_US: Final = 86_400_000_000


class AvroSchema(NamedTuple):
    """An Avro schema as fastavro has parsed it, and its named types."""

    parsed: Any
    named: Mapping[str, Any]


def avro_schema(schema: Schema) -> AvroSchema:
    """Parse an Avro schema with the schemas that it refers to. Raises `ValueNotDecoded`, ImportError, and what fastavro
    raises."""
    from fastavro import parse_schema  # type: ignore[import-not-found,import-untyped,unused-ignore]

    named: dict[str, Any] = {}
    readable = _Readable()
    for each in schema.references:
        parse_schema(readable.schema(parse_json(each.text), ""), named_schemas=named)
    return AvroSchema(parse_schema(readable.schema(parse_json(schema.text), ""), named_schemas=named), named)


def avro_decoder(schema: Schema) -> Callable[[memoryview], object]:
    """Return a function that decodes payloads (the bytes after the frame) of an Avro schema.

    The payload of a schema that is `bytes` itself has no length before its bytes, as Confluent's serializers write it
    (findings/avro_bytes_in_frames.sh). Raises what `avro_schema` raises.
    """
    from fastavro import schemaless_reader, schemaless_writer  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from fastavro.read import LOGICAL_READERS  # type: ignore[import-not-found,import-untyped,unused-ignore]

    for base, name, read in _READERS:
        LOGICAL_READERS[f"{base}-{name}"] = read
    parsed, named = avro_schema(schema)
    bounds = AvroBounds(parsed, named)
    is_bytes = type_of(parsed, named)[0] == "bytes"
    indexed = _indexed(parsed)
    read = {
        **(indexed if isinstance(indexed, dict) else {"type": indexed}),
        "__fastavro_parsed": True,
        "__named_schemas": {name: _indexed(each) for name, each in named.items()},
    }

    def decode(payload: memoryview) -> object:
        if is_bytes:
            sized = io.BytesIO()
            schemaless_writer(sized, "bytes", bytes(payload))
            payload = memoryview(sized.getvalue())
        bounds.check(payload)
        stream = io.BytesIO(payload)
        try:
            value = schemaless_reader(stream, read, None)
        except KeyError as index:
            raise ValueNotDecoded(f"the value names branch or symbol {index}, which its schema does not have") from None
        if stream.tell() != len(payload):
            raise ValueNotDecoded(f"{len(payload) - stream.tell()} bytes are left over after the value")
        return value

    return decode


def _indexed(parsed: Any) -> Any:
    """Return a parsed schema with the branches of unions and the symbols of enums by their indexes. fastavro looks up
    an index as it is in the value, and a negative one would find an item of a list."""
    if isinstance(parsed, list):
        return {"type": "union"} | dict(enumerate(map(_indexed, parsed)))
    if isinstance(parsed, str):
        return parsed
    found = dict(parsed)
    if "fields" in found:
        found["fields"] = [{**each, "type": _indexed(each["type"])} for each in found["fields"]]
    elif "symbols" in found:
        found["symbols"] = dict(enumerate(found["symbols"]))
    for of in ("items", "values"):
        if of in found:
            found[of] = _indexed(found[of])
    return found


class _Readable:
    """Rewrites Avro schemas for fastavro. Named types get the names `T0`, `T1`, …: this class resolves the names in the
    schema, so that fastavro has no namespaces to resolve."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """The names that types have for fastavro, by their full name in the schema."""

    def schema(self, given: Any, namespace: str) -> Any:
        """Rewrite a schema that was parsed from JSON for fastavro: named types get the names of this class, and
        attributes that decoding does not need are left out. `namespace`: the enclosing namespace. Raises
        `ValueNotDecoded`."""
        if isinstance(given, list):
            return [self.schema(each, namespace) for each in given]
        if isinstance(given, str):
            return given if given in _PRIMITIVES else self._referred(given, namespace)
        kind = given["type"]
        if not isinstance(kind, str):
            return self.schema(kind, namespace)
        if kind in _NAMED:
            name, inner = self._declared(given, namespace)
            return {"type": kind, "name": name, **self._contents(given, kind, inner)}
        if kind in ("array", "map"):
            of = "items" if kind == "array" else "values"
            return {"type": kind, of: self.schema(given[of], namespace)}
        if kind not in _PRIMITIVES:
            return self._referred(kind, namespace)
        return {"type": kind, **_logical_type(given, kind)}

    def _contents(self, given: Mapping[str, Any], kind: str, namespace: str) -> dict[str, Any]:
        if kind == "fixed":
            return {"size": given["size"], **_logical_type(given, kind)}
        if kind == "enum":
            return {"symbols": given["symbols"]}
        fields = [{"name": each["name"], "type": self.schema(each["type"], namespace)} for each in given["fields"]]
        return {"fields": fields}

    def _declared(self, given: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Give a declared type its name for fastavro. Returns this name, and the namespace within the type. If the
        type's name has dots, its attribute `namespace` is ignored. Raises `ValueNotDecoded` if the schema has another
        type of this name."""
        before, _, short = given["name"].rpartition(".")
        if not before:
            before = namespace if given.get("namespace") is None else given["namespace"]
        full = f"{before}.{short}" if before else short
        if full in self._names:
            raise ValueNotDecoded(f"the schema has two types of the name {full}")
        self._names[full] = f"T{len(self._names)}"
        return self._names[full], before

    def _referred(self, name: str, namespace: str) -> str:
        """Return the name for fastavro of the type to which a name refers. The name is looked up in the namespace, then
        without a namespace, as in Avro's own libraries. Raises `ValueNotDecoded`."""
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise ValueNotDecoded(f"the schema refers to {name}, which it does not have")
        return found


def _logical_type(given: Mapping[str, Any], base: str) -> dict[str, Any]:
    """The attributes that declare the logical type of an Avro type to fastavro; empty if the logical type is to be
    ignored."""
    name, size = given.get("logicalType"), given.get("size")
    if name == "decimal" and base in ("bytes", "fixed"):
        precision, scale = given.get("precision"), given.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
            return {}
        if base == "fixed" and precision > _digits_of(given["size"]):
            return {}
        known = DECIMAL if precision <= DIGITS_MAX else LONG_DECIMAL
        return {"logicalType": known, "precision": precision, "scale": scale}
    known = _LOGICAL.get((base, str(name), size if base == "fixed" else None), "")
    return {"logicalType": known} if known else {}


def _digits_of(size: int) -> int:
    """The number of decimal digits that a two's complement number of `size` bytes can always hold."""
    return len(str((1 << 8 * min(size, DECIMAL_SIZE_MAX) - 1) - 1)) - 1 if size > 0 else 0


# Readers of logical types, as fastavro calls them: (what is below the type, the schema, the schema of the reader)


def _decimal(data: bytes, schema: Mapping[str, Any], _: object = None) -> Decimal:
    number = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    if number and len(digits) > schema["precision"]:
        raise ValueNotDecoded(f"a decimal of {len(digits)} digits, where the schema allows {schema['precision']}")
    return Decimal((int(number < 0), digits, -schema["scale"]))


def _long_decimal(data: bytes, schema: Mapping[str, Any], _: object = None) -> str:
    return str(_decimal(data, schema))


def _big_decimal(data: bytes, schema: object, _: object = None) -> str:
    size, start = read_zigzag(data, 0)
    scale, end = read_zigzag(data, start + size)
    if size < 0 or end != len(data):
        raise ValueNotDecoded("a big-decimal that is not of its size")
    if size > DECIMAL_SIZE_MAX:
        raise HostileValue(f"the value has a decimal of {size} bytes")
    number = int.from_bytes(data[start : start + size], "big", signed=True)
    return str(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


def _uuid(data: bytes, schema: object, _: object = None) -> str:
    return str(UUID(bytes=data))


def _duration(data: bytes, schema: object, _: object = None) -> dict[str, int]:
    return dict(zip(("months", "days", "millis"), _DURATION.unpack(data), strict=True))


def _time_millis(number: int, schema: object, _: object = None) -> time:
    return _time_micros(number * 1000, schema)


def _time_micros(number: int, schema: object, _: object = None) -> time:
    if not 0 <= number < DAY_US:
        raise ValueNotDecoded(f"{number} µs are outside of a day")
    seconds, micros = divmod(number, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


_READERS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("bytes", DECIMAL, _decimal),
    ("fixed", DECIMAL, _decimal),
    ("bytes", LONG_DECIMAL, _long_decimal),
    ("fixed", LONG_DECIMAL, _long_decimal),
    ("bytes", BIG_DECIMAL, _big_decimal),
    ("fixed", UUID_TEXT, _uuid),
    ("fixed", DURATION, _duration),
    ("long", TIME_MICROS, _time_micros),
    ("int", TIME_MILLIS, _time_millis),
)
