"""The frame around a value whose schema is in a registry: a zero byte, the schema's id in four bytes, the payload.

A Protobuf payload begins with the path to its message type: a count, then that many indexes, all zigzag varints. A
single zero byte stands for the first type of the file.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.spark_jobs.refusals import Refused

MAGIC: Final = 0
HEAD: Final = Struct(">bi")
INDEXES_MAX: Final = 64
"""How deeply message types may be nested."""
VARINT_SIZE_MAX: Final = 5


class ValueNotDecoded(Refused):
    """A value is not framed, its schema does not exist, or it does not fit its schema or the columns."""


def unframed(value: bytes) -> tuple[int, memoryview]:
    """Split a framed value into (schema id, payload). Raises `ValueNotDecoded`."""
    if len(value) < HEAD.size or value[0] != MAGIC:
        raise ValueNotDecoded("the value is not framed: it begins with neither a zero byte nor the id of a schema")
    return HEAD.unpack_from(value)[1], memoryview(value)[HEAD.size :]


def message_path(payload: memoryview) -> tuple[list[int], memoryview]:
    """Split a Protobuf payload into (indexes of the message type, message). Raises `ValueNotDecoded`."""
    count, position = _varint(payload, 0)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueNotDecoded(f"the value has {count} indexes of message types")
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    return indexes or [0], payload[position:]


def _varint(payload: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    value = 0
    for count, byte in enumerate(payload[position : position + VARINT_SIZE_MAX]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + count + 1
    raise ValueNotDecoded("the value ends inside the indexes of its message type")
