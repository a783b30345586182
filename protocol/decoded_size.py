"""How much memory the bytes of a request may turn into, told from its declaration.

Every array's count is held against the bytes that its items take at least. That alone lets a byte of a large request
become sixty bytes of objects; so a request may decode into so many bytes of them, and not more. The sizes are what the
objects take at most in CPython, a little above what is measured. A request that is so short that it cannot reach the
bound, whatever it says, is decoded without any counting: nearly all are.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.primitives import MalformedMessage
from protocol.schema import NEVER, Field, Wire, fields_in, spec_of

DECODED_SIZE_MAX: Final = 56 << 20
"""Bytes of objects: a fetch of a hundred thousand partitions, each in a topic of its own, takes 50 MB of them."""
TAG_CHARGE: Final = 1024
"""What a tag that is skipped counts: it takes no memory, but as long as an object does."""
CONTENT_CHARGE: Final = 4
"""What a byte of text counts: one character outside the basic plane makes all of a text four bytes wide."""

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
"""Beside an integer's; numbers of one byte are shared."""
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
    """The bytes of objects that one value of a field, or one item of an array, becomes; arrays in it count as empty."""
    if isinstance(field.kind, Wire):
        return SLOT_SIZE + VALUE_SIZES.get(field.kind, INTEGER_SIZE)
    plain, tagged, absent = fields_in(field.kind, version)
    total = OBJECT_SIZE + SLOT_SIZE * len(absent)
    for part in plain + tagged:
        total += SLOT_SIZE + EMPTY_LIST_SIZE if part.is_array else decoded_size(part, version)
    return total


def uncounted_size(cls: type[object], version: int) -> int:
    """Up to this many bytes a message cannot decode into more than the bound, whatever it says."""
    is_flexible = version in spec_of(cls).flexible
    most = max(CONTENT_CHARGE, TAG_CHARGE // 2 if is_flexible else 1, *_ratios(cls, version, is_flexible), 1)
    return DECODED_SIZE_MAX // most


def _ratios(cls: type[object], version: int, is_flexible: bool) -> list[int]:
    """Bytes of objects for one byte of the wire, rounded up, for each array in a struct and below it."""
    found = []
    plain, tagged, _ = fields_in(cls, version)
    for field in plain + tagged:
        if field.is_array:
            item = field._replace(nullable=NEVER)
            found.append(-(-decoded_size(item, version) // least_size(item, version, is_flexible)))
        if field.struct is not None:
            found += _ratios(field.struct, version, is_flexible)
    return found


def too_many_items(name: str) -> MalformedMessage:
    """Past the bound."""
    return MalformedMessage(f"the request decodes into more than {DECODED_SIZE_MAX} bytes, at {name}")
