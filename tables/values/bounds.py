"""The limits of a value, checked before a library decodes it: the depth of its nesting, and how many values it makes of
its bytes.

| bound | value | why |
|---|---|---|
| depth | `DEPTH_MAX` | decoders in C recurse on the stack, and may crash at its end |
| a decimal | `DECIMAL_SIZE_MAX` bytes | its conversion takes a time that is quadratic in its size |
| values within one | `VALUES_MAX`, or two for a byte if that is more | ten bytes may claim billions of nulls |

A record, a map and an array count as several values (`WEIGHTS`): a value takes about 32 bytes of memory, and the values
of a megabyte take 64 MB.

Every reader refuses a value beyond these limits: the console, lake, `moldau.values`, Spark. The memory of a value is
then in proportion to its bytes, which have the limits of batches. A payload is only examined byte by byte if its schema
and its size would allow a value beyond the limits. With most schemas no payload is examined.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

from moldau.tables.values.registry import ValueNotDecoded

DEPTH_MAX: Final = 100
"""The deepest nesting of a value, which is also the limit of Protobuf's libraries."""
VALUES_MAX: Final = 500_000
DECIMAL_SIZE_MAX: Final = 1024
"""The most bytes of a decimal, which then has 2,466 digits. Python takes a time that is quadratic in the digits: half a
second for 40,000 digits."""
BRACKETS_SOUGHT: Final = 6
"""The number of opening brackets of a JSON text that are found one by one, before all are counted."""
_NOT_BRACKETS: Final = bytes(each for each in range(256) if each not in b"[]{}")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Translates brackets into signed bytes, which change the depth of nesting by 1 or -1."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
"""The pattern of a JSON string, also of one that does not end. It is possessive, so that it takes linear time."""


Scan = Callable[[str, int], tuple[Any, int]]
"""A function that parses a JSON value at a position of a text, and returns it with the position after it. Raises
StopIteration if there is none."""


@cache
def scanner(parse_float: Callable[[str], object] | None = None) -> Scan:
    """Return the function with which Python's `json` parses one value at a position of a text. `parse_float`: see
    `parse_json`."""
    scan: Scan = json.JSONDecoder(parse_float=parse_float).scan_once  # type: ignore[attr-defined]
    return scan


class HostileValue(ValueNotDecoded):
    """A value exceeds the limits: it is nested too deeply, or claims too many values."""


def values_max(size: int) -> int:
    """The most values that may be within a value of `size` bytes."""
    return max(VALUES_MAX, 2 * size)


def nesting_error() -> HostileValue:
    return HostileValue(f"the value is nested deeper than {DEPTH_MAX}")


def value_count_error(size: int) -> HostileValue:
    return HostileValue(f"the value of {size} bytes claims more than {values_max(size)} values")


# JSON


def parse_json(data: bytes | memoryview, parse_float: Callable[[str], object] | None = None) -> Any:
    """Parse JSON that is not nested too deeply. `parse_float`: a function that makes a value from the text of a number
    with a fraction or an exponent; None makes floats. Raises `HostileValue`, and ValueError for a text that is not
    JSON.

    The number of values is not checked, because each value within a JSON value takes two bytes.
    """
    data = bytes(data)
    if has_many_brackets(data) and json_depth(data) > DEPTH_MAX:
        raise nesting_error()
    scan = scanner(parse_float)
    try:
        text = data.decode()
        value, end = scan(text, 0)
        if end == len(text):
            return value
    except (ValueError, StopIteration):
        pass
    try:  # another encoding than UTF-8, white space around the value, or no JSON
        return json.loads(data, parse_float=parse_float)
    except RecursionError:  # UTF-16 may hide brackets
        raise nesting_error() from None


def has_many_brackets(data: bytes) -> bool:
    """Whether a text has more than `DEPTH_MAX` opening brackets.

    `bytes.find` passes text without a bracket about ten times as fast as `bytes.count`, and most values have few.
    """
    position, left = data.find(b"["), BRACKETS_SOUGHT
    while position >= 0 and left:
        position, left = data.find(b"[", position + 1), left - 1
    if left:
        position = data.find(b"{")
        while position >= 0 and left:
            position, left = data.find(b"{", position + 1), left - 1
    return not left and data.count(b"[") + data.count(b"{") > DEPTH_MAX


def json_depth(data: bytes) -> int:
    """The depth to which the arrays and objects of a JSON text are nested. Brackets within strings do not count."""
    brackets = re.sub(_STRING, b"", data, flags=re.DOTALL) if b'"' in data else data
    steps = array("b", brackets.translate(_STEPS, _NOT_BRACKETS))
    return max(accumulate(steps, initial=0))


# Avro

_SIZES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
    "enum": 1,
}
"""The fewest bytes of a value of each Avro type."""
_RECORDS: Final = ("record", "error")
DECIMAL: Final = "moldau-decimal"
LONG_DECIMAL: Final = "moldau-long-decimal"
BIG_DECIMAL: Final = "moldau-big-decimal"
DECIMALS: Final = (DECIMAL, LONG_DECIMAL, BIG_DECIMAL)
"""The logical types of decimals, as `avro.py` names them for fastavro."""
WEIGHTS: Final = {"record": 8, "error": 8, "map": 8, "array": 3}
"""The number of values for which a value of these types counts, besides the values within it. Python takes about 210
bytes for a record of one field."""
_Named = Mapping[str, Any]
"""The named types of an Avro schema, as fastavro has parsed them."""


class _Shape(NamedTuple):
    """The bounds of the values of an Avro type."""

    depth: float
    size: int
    """The fewest bytes of a value."""
    values: int
    """The most values within a value, besides those in its arrays and maps."""
    per_byte: float
    """The most values that one byte of its arrays and maps may claim."""


class AvroBounds:
    """Checks that payloads of one Avro schema, which fastavro has parsed, are within the limits."""

    def __init__(self, schema: Any, named: _Named) -> None:
        self._schema = schema
        self._named = named
        self._has_decimals = False
        self._shapes: dict[str, _Shape] = {}
        """The bounds of record types, by name, because a schema may repeat one record type in another any number of
        times."""
        shape = self._shape(schema, ())
        self._is_shallow = shape.depth <= DEPTH_MAX and shape.values <= VALUES_MAX
        self._per_byte = shape.per_byte

    def check(self, payload: bytes | memoryview) -> None:
        """Raise `HostileValue` if a payload exceeds the limits, and `ValueNotDecoded` if it is cut short."""
        is_small = self._per_byte * len(payload) <= values_max(len(payload))
        if self._is_shallow and is_small and not (self._has_decimals and len(payload) > DECIMAL_SIZE_MAX):
            return
        _AvroWalk(bytes(payload), self._named).walk(self._schema)

    def _shape(self, schema: Any, above: tuple[str, ...]) -> _Shape:
        name, schema = type_of(schema, self._named)
        own = schema.get("name", "") if name in _RECORDS else ""
        if own in self._shapes:
            return self._shapes[own]
        if own in above or len(above) > DEPTH_MAX:
            return _Shape(float("inf"), 0, 0, float("inf"))
        if isinstance(schema, list):
            branches = [self._shape(each, above) for each in schema] or [_Shape(0, 0, 0, 0)]
            return _Shape(
                max(each.depth for each in branches),
                1 + min(each.size for each in branches),
                max(each.values for each in branches),
                max(each.per_byte for each in branches),
            )
        if name == "fixed":
            if is_decimal(schema) and schema["size"] > DECIMAL_SIZE_MAX:
                raise HostileValue(f"the schema has decimals of {schema['size']} bytes")
            return _Shape(0, schema["size"], 1, 0)
        if name in _SIZES:
            self._has_decimals |= is_decimal(schema)
            return _Shape(0, _SIZES[name], 1, 0)
        if name in _RECORDS:
            fields = [self._shape(each["type"], (*above, own)) for each in schema["fields"]]
            found = self._shapes[own] = _Shape(
                1 + max((each.depth for each in fields), default=0),
                sum(each.size for each in fields),
                WEIGHTS[name] + sum(each.values for each in fields),
                max((each.per_byte for each in fields), default=0),
            )
            return found
        item = self._shape(schema["items" if name == "array" else "values"], above)
        size = item.size + (name == "map")
        per_byte = max(item.values / size if size else float("inf"), item.per_byte)
        return _Shape(1 + item.depth, 1, WEIGHTS[name], per_byte)


def type_of(schema: Any, named: _Named) -> tuple[str, Any]:
    """The kind of an Avro type (empty for a union), and its definition. Names are resolved."""
    while True:
        if isinstance(schema, list):
            return "", schema
        name = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(name, str):
            schema = name
        elif isinstance(schema, str) and name in named:
            schema = named[name]
        else:
            return name, schema


def is_decimal(schema: Any) -> bool:
    """Whether an Avro type, as `avro.py` has rewritten it, is a decimal."""
    return isinstance(schema, dict) and schema.get("logicalType") in DECIMALS


class _AvroWalk:
    """One pass over an Avro payload that counts its values, without making them and without recursion."""

    def __init__(self, data: bytes, named: _Named) -> None:
        self._data = data
        self._named = named
        self._position = 0
        self._left = values_max(len(data))

    def walk(self, schema: Any) -> None:
        frames: list[Iterator[Any]] = [iter((schema,))]
        while frames:
            kind = next(frames[-1], None)
            if kind is None:
                frames.pop()
                continue
            inner = self._inner(kind)
            if inner is None:
                self._claim(1)
            else:
                frames.append(inner)
                if len(frames) > DEPTH_MAX + 1:
                    raise nesting_error()

    def _inner(self, schema: Any) -> Iterator[Any] | None:
        """Return the types of the values within the value at the current position. Return None for a scalar, which is
        skipped."""
        name, schema = type_of(schema, self._named)
        while isinstance(schema, list):
            index = self._long()
            if not 0 <= index < len(schema):
                raise ValueNotDecoded(f"the value names branch {index} of a union of {len(schema)}")
            name, schema = type_of(schema[index], self._named)
        if name in WEIGHTS:
            self._claim(WEIGHTS[name])
        if name in _RECORDS:
            return (each["type"] for each in schema["fields"])
        if name in ("array", "map"):
            return self._items(schema["items" if name == "array" else "values"], name == "map")
        if name in ("int", "long", "enum"):
            self._long()
        elif name in ("bytes", "string"):
            size = self._long()
            if size > DECIMAL_SIZE_MAX and is_decimal(schema):
                raise HostileValue(f"the value has a decimal of {size} bytes")
            self._skip(size)
        else:
            self._skip(schema["size"] if name == "fixed" else _SIZES[name])
        return None

    def _items(self, item: Any, is_map: bool) -> Iterator[Any]:
        name, of_item = type_of(item, self._named)
        least = WEIGHTS.get(name, 1) + (len(of_item["fields"]) if name in _RECORDS else 0)
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # The size of the block.
            if count * least > self._left:
                raise value_count_error(len(self._data))
            if item == "null" and not is_map:
                self._claim(count)
                continue
            for _ in range(count):
                if is_map:
                    self._skip(self._long())
                yield item

    def _claim(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise value_count_error(len(self._data))

    def _skip(self, size: int) -> None:
        self._position += size
        if size < 0 or self._position > len(self._data):
            raise ValueNotDecoded("the value is cut short")

    def _long(self) -> int:
        value, self._position = read_zigzag(self._data, self._position)
        return value


def read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits. Returns it, and the position after it. Raises `ValueNotDecoded`."""
    value, position = read_varint(data, position)
    return value >> 1 ^ -(value & 1), position


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a varint of at most 64 bits. Returns it, and the position after it. Raises `ValueNotDecoded`."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueNotDecoded("the value is cut short, or has a number of more than 64 bits")


# Protobuf

_VARINT, _FIXED64, _SIZED, _GROUP, _GROUP_END, _FIXED32 = range(6)


class ProtobufBounds:
    """Checks that messages of one Protobuf type are within the limits. Protobuf's library itself refuses more than 100
    levels of nesting."""

    def __init__(self, descriptor: Any, extensions: Callable[[Any], Iterable[Any]] = lambda _: ()) -> None:
        """`extensions`: a function that returns the extensions of a message type."""
        self._descriptor = descriptor
        self._fields = _fields_by_number(descriptor, extensions)
        self._fields_max = max(max(len(each), 1) for each in self._fields.values())

    def check(self, payload: bytes | memoryview) -> None:
        """Raise `HostileValue` if a payload exceeds the limits, and `ValueNotDecoded` if it is cut short."""
        # Two bytes of the payload can be a nested message, which is decoded with a value for each field of its type.
        if len(payload) // 2 * self._fields_max <= VALUES_MAX:
            return
        data = bytes(payload)
        left = values_max(len(data))
        frames: list[tuple[int, Any]] = [(len(data), self._descriptor)]
        position = 0
        while frames:
            end, descriptor = frames[-1]
            if position >= end:
                frames.pop()
                continue
            tag, position = read_varint(data, position)
            wire = tag & 7
            field = None if descriptor is None else self._fields[descriptor.full_name].get(tag >> 3)
            if wire == _GROUP_END:
                frames.pop()
                continue
            size = 0
            if wire == _VARINT:
                _, position = read_varint(data, position)
            elif wire in (_FIXED64, _FIXED32):
                position += 8 if wire == _FIXED64 else 4
            elif wire == _SIZED:
                size, position = read_varint(data, position)
            elif wire != _GROUP:
                raise ValueNotDecoded(f"the value has a field of the unknown wire type {wire}")
            inner = None if field is None else field.message_type
            if wire == _GROUP or (wire == _SIZED and inner is not None):
                left -= 1 if inner is None else 1 + len(self._fields[inner.full_name])
                frames.append((end if wire == _GROUP else position + size, inner))
                if len(frames) > DEPTH_MAX + 1:
                    raise nesting_error()
            else:
                left -= 1
                position += size
            if left < 0:
                raise value_count_error(len(data))
            if position > len(data):
                raise ValueNotDecoded("the value is cut short")


def _fields_by_number(descriptor: Any, extensions: Callable[[Any], Iterable[Any]]) -> dict[str, dict[int, Any]]:
    """The fields of each message type that may be within a message of this type: for its full name, the fields by
    number."""
    found: dict[str, dict[int, Any]] = {}
    left = [descriptor]
    while left:
        each = left.pop()
        if each.full_name in found:
            continue
        fields = [*each.fields, *extensions(each)]
        found[each.full_name] = {field.number: field for field in fields}
        left += (field.message_type for field in fields if field.message_type is not None)
    return found
