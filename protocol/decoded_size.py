"""The limit on the memory that a decoded request takes, computed from the declaration of the message.

The count of every array is compared with the bytes that remain: each item takes at least one byte. That check alone
would let one byte of a large request become sixty bytes of Python objects, so the total is limited as well. The sizes
below are upper bounds for CPython, a little above measured ones. A request that is too short to reach the limit,
whatever it holds, is decoded without counting; nearly all requests are.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.schema import NEVER, Field, Wire, fields_in, spec_of

DECODED_SIZE_MAX: Final = 56 << 20
"""Limit on the bytes of objects: a fetch of 100,000 partitions, each in a topic of its own, takes 50 MB."""
SHORT_DECODED_SIZE_MAX: Final = 1 << 19
"""The bytes of objects up to which a request is decoded on the event loop: that takes about a millisecond."""
TAG_CHARGE: Final = 1024
"""Bytes charged for a skipped tag: it takes no memory, but as much time as an object."""
CONTENT_CHARGE: Final = 4
"""Bytes charged for a byte of text: CPython stores a text with one character outside of the basic plane in 4 bytes for
each character.
"""

OBJECT_SIZE: Final = 48
SLOT_SIZE: Final = 8
EMPTY_LIST_SIZE: Final = 56
VALUE_SIZES: Final = {
    Wire.BOOL: 0,
    Wire.INT8: 0,
    Wire.UUID: 49,
    Wire.FLOAT64: 24,
    Wire.STRING: 56,
    Wire.BYTES: 40,
    Wire.RECORDS: 184,
}
"""Bytes of the object of a value; other types take `INTEGER_SIZE`. CPython shares the objects of one-byte numbers."""
INTEGER_SIZE: Final = 32


def least_size(field: Field, version: int, is_flexible: bool) -> int:
    """The least number of bytes that one value of a field, or one item of an array, takes on the wire."""
    if isinstance(field.kind, Wire):
        if field.kind.is_fixed:
            return struct.calcsize(">" + field.kind.value)
        return 1 if is_flexible else 2 if field.kind is Wire.STRING else 4
    total = 1 if is_flexible else 0
    for part in fields_in(field.kind, version)[0]:
        if part.is_array:
            total += 1 if is_flexible else 4
        else:
            is_null = part.struct is not None and version in part.nullable
            total += 1 if is_null else least_size(part, version, is_flexible)
    assert total, "items of no bytes could be claimed without end"
    return total


def decoded_size(field: Field, version: int) -> int:
    """Bytes of the objects that one value of a field, or one item of an array, decodes into; arrays inside count as
    empty."""
    if isinstance(field.kind, Wire):
        return SLOT_SIZE + VALUE_SIZES.get(field.kind, INTEGER_SIZE)
    plain, tagged, absent = fields_in(field.kind, version)
    total = OBJECT_SIZE + SLOT_SIZE * len(absent)
    for part in plain + tagged:
        total += SLOT_SIZE + EMPTY_LIST_SIZE if part.is_array else decoded_size(part, version)
    return total


def uncounted_size(cls: type[object], version: int) -> int:
    """The size (bytes) of a message up to which it cannot decode into more than the limit."""
    is_flexible = version in spec_of(cls).flexible
    most = max(CONTENT_CHARGE, TAG_CHARGE // 2 if is_flexible else 1, *_ratios(cls, version, is_flexible), 1)
    return DECODED_SIZE_MAX // most


def _ratios(cls: type[object], version: int, is_flexible: bool) -> list[int]:
    """The bytes of Python objects for one byte on the wire, rounded up, for each array in a struct and in the structs
    below it.
    """
    found = []
    plain, tagged, _ = fields_in(cls, version)
    for field in plain + tagged:
        if field.is_array:
            item = field._replace(nullable=NEVER)
            found.append(-(-decoded_size(item, version) // least_size(item, version, is_flexible)))
        if field.struct is not None:
            found += _ratios(field.struct, version, is_flexible)
    return found


class LongMessage(Exception):
    """A message decodes into more than `SHORT_DECODED_SIZE_MAX`: it is decoded again in an executor thread."""


def long_message(name: str) -> LongMessage:
    """The exception of the decoder of short messages, at the field `name`."""
    return LongMessage(f"the message decodes into more than {SHORT_DECODED_SIZE_MAX} bytes, at {name}")


def too_many_items(name: str) -> MalformedMessage:
    """The error for a request that exceeds the limit at the field `name`."""
    return MalformedMessage(f"the request decodes into more than {DECODED_SIZE_MAX} bytes, at {name}")
