"""The frames of the records that coordinators write: a key is an int16 type and a struct, a value is an int16 version
and a struct."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import TEXT_SIZE_MAX, MalformedMessage
from moldau.protocol.schema import spec_of

PREFIX_SIZE: Final = 2
"""The size (bytes) of the type before a key's struct, and of the version before a value's struct."""


class DeclaredRecord(NamedTuple):
    """The structs of the key and the value of one type of record in a coordinator's topic."""

    key: type[object]
    value: type[object]

    @property
    def name(self) -> str:
        """Apache Kafka's name of the type."""
        return self.key.__name__.removesuffix("Key")


def declared_records(*modules: ModuleType) -> dict[int, DeclaredRecord]:
    """The record types that the modules declare, by type number. Each is a pair of classes `…Key` and `…Value`."""
    found = {}
    for module in modules:
        for name, key in vars(module).items():
            if name.endswith("Key") and (value := vars(module).get(f"{name.removesuffix('Key')}Value")) is not None:
                number = spec_of(key).key
                assert number is not None and number not in found, f"the type of {name}"
                found[number] = DeclaredRecord(key, value)
    return found


def type_prefix(number: int) -> bytes:
    """Encode the type before a key's struct, or the version before a value's struct."""
    return struct.pack(">h", number)


def read_prefix(data: bytes) -> int:
    """Read the type of a key, or the version of a value. Raises `MalformedMessage` if the bytes are too short."""
    if len(data) < PREFIX_SIZE:
        raise MalformedMessage(f"{len(data)} bytes cannot hold a version")
    number: int = struct.unpack_from(">h", data)[0]
    return number


def value_version(value: bytes, cls: type[object]) -> int:
    """Read the version of a value of class `cls`. Raises `MalformedMessage` if the class does not define the
    version."""
    version = read_prefix(value)
    if version not in spec_of(cls).versions:
        raise MalformedMessage(f"{cls.__name__} version {version}")
    return version


def is_storable(text: str) -> bool:
    """Whether a string fits into a coordinator's record, in which the size of a string has 16 bits. A request may
    contain longer strings."""
    return len(text) <= TEXT_SIZE_MAX // 4 or len(text.encode()) <= TEXT_SIZE_MAX
