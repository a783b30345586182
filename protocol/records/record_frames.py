"""The frames of coordinators' records: a key is an int16 type and a struct, a value an int16 version and a struct."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.schema import spec_of

PREFIX_SIZE: Final = 2
"""The size (bytes) of the type of a key, and of the version of a value."""
TEXT_SIZE_MAX: Final = 0x7FFF
"""The most bytes of a text in a struct of a version that is not flexible."""


class DeclaredRecord(NamedTuple):
    """The structs of one type of record of a coordinator's topic."""

    key: type[object]
    value: type[object]

    @property
    def name(self) -> str:
        """Apache Kafka's name of the type."""
        return self.key.__name__.removesuffix("Key")


def declared_records(*modules: ModuleType) -> dict[int, DeclaredRecord]:
    """The types of records that modules of this package declare, by number: each pair of classes `…Key`, `…Value`."""
    found = {}
    for module in modules:
        for name, key in vars(module).items():
            if name.endswith("Key") and (value := vars(module).get(f"{name.removesuffix('Key')}Value")) is not None:
                number = spec_of(key).key
                assert number is not None and number not in found, f"the type of {name}"
                found[number] = DeclaredRecord(key, value)
    return found


def type_prefix(number: int) -> bytes:
    """The first bytes of a key of this type, or of a value of this version."""
    return struct.pack(">h", number)


def read_prefix(data: bytes) -> int:
    """The type of a key, or the version of a value. Raises `MalformedMessage`."""
    if len(data) < PREFIX_SIZE:
        raise MalformedMessage(f"{len(data)} bytes cannot hold a version")
    number: int = struct.unpack_from(">h", data)[0]
    return number


def value_version(value: bytes, cls: type[object]) -> int:
    """The version of a value of class `cls`. Raises `MalformedMessage` if the class does not define the version."""
    version = read_prefix(value)
    if version not in spec_of(cls).versions:
        raise MalformedMessage(f"{cls.__name__} version {version}")
    return version


def is_storable(text: str) -> bool:
    """Whether a record can hold the text: its size has 16 bits in a record, and more in a request."""
    return len(text) <= TEXT_SIZE_MAX // 4 or len(text.encode()) <= TEXT_SIZE_MAX
