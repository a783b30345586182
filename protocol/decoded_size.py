"""Limits on messages: on the memory of a decoded request, computed from its declaration, and on the size of strings.

A decoder compares the count of every array with the number of bytes that remain, because each item takes at least one
byte. That check alone would let one byte of a large request become sixty bytes of Python objects, so the total is
limited as well. The sizes in this module are upper bounds for CPython, a little above measured ones. A request that is
too short to reach the limit, whatever it contains, is decoded without counting; nearly all requests are.

The size of a string is limited, too. A byte that is not UTF-8 is read as U+FFFD, as in Apache Kafka.

DIVERGES: U+FFFD has three bytes, so such a string may become longer than a string may be. Here it is then malformed, so
that every string that was read can be written; Apache Kafka takes it, and fails to write what contains it. A message of
this node that repeats a string and becomes too long is cut; Apache Kafka fails to write it.
"""

from __future__ import annotations

import codecs
import struct
from typing import Final

from moldau.protocol.primitives import TEXT_SIZE_MAX, MalformedMessage
from moldau.protocol.schema import NEVER, Field, WireType, fields_in, spec_of

DECODED_SIZE_MAX: Final = 56 << 20
"""The limit on the bytes of decoded objects. A fetch of 100,000 partitions, each in a topic of its own, takes 50 MB."""
SHORT_DECODED_SIZE_MAX: Final = 1 << 19
"""The bytes of decoded objects up to which a request is decoded on the event loop, which takes about a millisecond."""
TAG_CHARGE: Final = 1024
"""The bytes that are counted for a skipped tag. A skipped tag takes no memory, but as much time as an object."""
CONTENT_CHARGE: Final = 4
"""The bytes that are counted for each byte of text. CPython stores a text with one character outside of the basic plane
in 4 bytes for each character."""
TEXT_ERRORS: Final = "moldau-text"
"""The name of the error handler for `str(data, "utf-8", TEXT_ERRORS)`. The handler reads a byte that is not UTF-8 as
U+FFFD, and raises `MalformedMessage` if the text could then exceed `TEXT_SIZE_MAX` bytes."""
CUT_FIELDS: Final = ("error_message", "status_detail")
"""The fields of responses whose texts are cut to `TEXT_SIZE_MAX` bytes. This node writes these texts, and may repeat
strings of the request in them."""

OBJECT_SIZE: Final = 48
SLOT_SIZE: Final = 8
EMPTY_LIST_SIZE: Final = 56
VALUE_SIZES: Final = {
    WireType.BOOL: 0,
    WireType.INT8: 0,
    WireType.UUID: 49,
    WireType.FLOAT64: 24,
    WireType.STRING: 56,
    WireType.BYTES: 40,
    WireType.RECORDS: 184,
}
"""The bytes of the Python object of a value, by its type; other types take `INTEGER_SIZE`. One-byte numbers take none,
because CPython shares their objects."""
INTEGER_SIZE: Final = 32


def least_size(field: Field, version: int, is_flexible: bool) -> int:
    """The least number of bytes that one value of a field, or one item of an array field, takes on the wire."""
    if isinstance(field.kind, WireType):
        if field.kind.is_fixed:
            return struct.calcsize(">" + field.kind.value)
        return 1 if is_flexible else 2 if field.kind is WireType.STRING else 4
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
    """The bytes of the Python objects into which one value of a field, or one item of an array field, is decoded.
    Arrays in it count as empty."""
    if isinstance(field.kind, WireType):
        return SLOT_SIZE + VALUE_SIZES.get(field.kind, INTEGER_SIZE)
    plain, tagged, absent = fields_in(field.kind, version)
    total = OBJECT_SIZE + SLOT_SIZE * len(absent)
    for part in plain + tagged:
        total += SLOT_SIZE + EMPTY_LIST_SIZE if part.is_array else decoded_size(part, version)
    return total


def uncounted_size(cls: type[object], version: int) -> int:
    """The largest size (bytes) of a message that cannot exceed the limit when it is decoded."""
    is_flexible = version in spec_of(cls).flexible
    most = max(CONTENT_CHARGE, TAG_CHARGE // 2 if is_flexible else 1, *_ratios(cls, version, is_flexible), 1)
    return DECODED_SIZE_MAX // most


def _ratios(cls: type[object], version: int, is_flexible: bool) -> list[int]:
    """For each array in a struct and in its nested structs, the bytes of Python objects per byte on the wire, rounded
    up."""
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
    """Raised if a message is decoded into more than `SHORT_DECODED_SIZE_MAX` bytes. The message is then decoded in an
    executor thread."""


def long_message(name: str) -> LongMessage:
    """The exception for a message that exceeds `SHORT_DECODED_SIZE_MAX` at the field `name`."""
    return LongMessage(f"the message decodes into more than {SHORT_DECODED_SIZE_MAX} bytes, at {name}")


def too_many_items(name: str) -> MalformedMessage:
    """The exception for a request that exceeds `DECODED_SIZE_MAX` at the field `name`."""
    return MalformedMessage(f"the request decodes into more than {DECODED_SIZE_MAX} bytes, at {name}")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    size = len(error.object)
    if size > TEXT_SIZE_MAX // 3:
        raise MalformedMessage(f"a string of {size} bytes that is not UTF-8")
    return "\ufffd", error.end


codecs.register_error(TEXT_ERRORS, _replaced)


def cut_text(data: bytes) -> bytes:
    """Cut a text in UTF-8 to `TEXT_SIZE_MAX` bytes. A character that would be cut in two is left out."""
    return data[:TEXT_SIZE_MAX].decode(errors="ignore").encode()
