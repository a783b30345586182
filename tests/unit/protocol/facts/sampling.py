"""Builds a message whose values follow from one rule, the rule that made the bytes kept in `java_bytes.txt`.

A counter runs through the message in wire order, tagged fields last and by number; "draw" adds one to it and gives it.

    nullable      draw n: null if 5 divides n
    tagged        draw n: left at its default if 3 divides n
    array         draw n: no items if 9 divides n, else 1 + n % 2
    struct        its fields
    bool          draw n: n is odd
    int8          draw n: n * 37 % 256 - 128
    int16         draw n: n * 7919 % 65536 - 32768
    uint16        draw n: n * 7919 % 65536
    int32         draw n: n * 2654435761 % 2^32 - 2^31
    uint32        draw n: n * 2654435761 % 2^32
    int64         draw n: n * 0x9E3779B97F4A7C15 - 2^63, wrapped to 64 bits
    float64       draw n: n / 4
    uuid          draw n: the bytes n, n + 1 ... n + 15, modulo 256
    string        draw n: "s" and n in decimal; then "ž" if 7 divides n; then 130 times "x" if 31 divides n
    bytes         as a string, with "b"
    records       as a string, with "r"

The draw for null comes before that for the value. A field that the version lacks keeps its default.
"""

from __future__ import annotations

from typing import cast

from moldau.protocol.schema import EMPTY, Field, WireType, fields_of

INT64_BIAS = 1 << 63


def default_message(cls: type[object]) -> object:
    """A message or struct with every field at its default, those of structs it must hold included."""
    message = cls.__new__(cls)
    for field in fields_of(cls):
        setattr(message, field.name, default_value(field))
    return message


def default_value(field: Field) -> object:
    if field.default is EMPTY:
        return []
    if field.struct is not None and not field.is_array and (field.tag is None) == (field.nullable.last < 0):
        return default_message(field.struct)
    return field.default


class Sampler:
    """The rule, for one version and from one start of the counter."""

    def __init__(self, version: int, start: int = 0) -> None:
        self.version = version
        self.counter = start

    def message(self, cls: type[object]) -> object:
        message = default_message(cls)
        here = [field for field in fields_of(cls) if self.version in field.versions]
        for field in here:
            if field.tag is None:
                setattr(message, field.name, self.field(field))
        for field in sorted((field for field in here if field.tag is not None), key=lambda field: field.tag or 0):
            if self.draw() % 3:
                setattr(message, field.name, self.field(field))
        return message

    def draw(self) -> int:
        self.counter += 1
        return self.counter

    def field(self, field: Field) -> object:
        if self.version in field.nullable and self.draw() % 5 == 0:
            return None
        if not field.is_array:
            return self.value(field)
        number = self.draw()
        return [self.value(field) for _ in range(0 if number % 9 == 0 else 1 + number % 2)]

    def value(self, field: Field) -> object:
        return self.message(field.struct) if field.struct is not None else self.primitive(cast("WireType", field.kind))

    def primitive(self, kind: WireType) -> object:
        n = self.draw()
        match kind:
            case WireType.BOOL:
                return n % 2 == 1
            case WireType.INT8:
                return n * 37 % 256 - 128
            case WireType.INT16:
                return n * 7919 % 65536 - 32768
            case WireType.UINT16:
                return n * 7919 % 65536
            case WireType.INT32:
                return n * 2654435761 % (1 << 32) - (1 << 31)
            case WireType.UINT32:
                return n * 2654435761 % (1 << 32)
            case WireType.INT64:
                return n * 0x9E3779B97F4A7C15 % (1 << 64) - INT64_BIAS
            case WireType.FLOAT64:
                return n / 4
            case WireType.UUID:
                return bytes((n + index) % 256 for index in range(16))
            case WireType.STRING:
                return text("s", n)
            case WireType.BYTES:
                return text("b", n).encode()
            case WireType.RECORDS:
                return text("r", n).encode()


def text(prefix: str, n: int) -> str:
    return f"{prefix}{n}{'ž' if n % 7 == 0 else ''}{'x' * 130 if n % 31 == 0 else ''}"


def sample(cls: type[object], version: int, start: int = 0) -> object:
    """The message of the rule."""
    return Sampler(version, start).message(cls)
