"""Frames: the bytes by which a value names its schema. They are before the payload, or in a header of the record.

| named by | bytes of the frame |
|---|---|
| its id | 0, the id in four bytes |
| its GUID | 1, the 16 bytes of the GUID |

For Protobuf alone the path to the message type follows: a count, then that many indexes, all zigzag varints. A single
zero byte means the first type of the file. Serializers put an id before the payload, and a GUID into a header.

If the record has such a header, the header decides: the whole value is the payload, even if it begins with a zero byte.
That is how Confluent's deserializers choose. A record may have several headers of the name, because a serializer adds
its own after those that the record has from elsewhere. The last one counts, as in the clients for Java and .NET; the
client for Python takes the first one (findings/confluent_copied_schema_ids.sh). A header without a value counts as
none.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from moldau.tables.values.registry import SchemaId, ValueNotDecoded

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
_ID: Final = Struct(">bi")
_GUID: Final = Struct(">b16s")
INDEXES_MAX: Final = 64
"""The most levels of nested message types in the path of a Protobuf payload."""
VARINT_SIZE_MAX: Final = 5
KEY, VALUE, HEADERS = "key", "value", "headers"
"""The columns of rows of records that have frames: before the bytes of a key or a value, or in a header."""


class HeaderFramed(bytes):
    """A key or a value whose frame is in a header of its record, so that all of its bytes are the payload. It is a
    subclass of bytes, so that decoders take it like a key or value that begins with its frame.
    """

    def __new__(cls, payload: bytes, header: bytes) -> Self:
        found = super().__new__(cls, payload)
        found.header = header
        return found

    header: bytes


class FramedPayload(NamedTuple):
    """A payload, and what its frame says about it."""

    schema_id: SchemaId
    payload: memoryview
    path: memoryview | None = None
    """The bytes after the schema in a header: the path to the message type of Protobuf, and none for other schemas.
    None if the frame is before the payload; that of Protobuf begins with the path then."""

    def of_kind(self, kind: str) -> memoryview:
        """Return the payload for the decoder of a schema of this kind; for Protobuf it begins with the path. Raises
        `ValueNotDecoded` if the header is not that of such a schema."""
        if self.path is None:
            return self.payload
        if kind != "PROTOBUF":
            if self.path:
                raise ValueNotDecoded(f"the header has {len(self.path)} bytes after the schema, which is of {kind}")
            return self.payload
        _, left = message_path(self.path)
        if left:
            raise ValueNotDecoded(f"the header has {len(left)} bytes after the path to the message type")
        return memoryview(bytes(self.path) + bytes(self.payload))


def header_name(column: str) -> str:
    """The name of the header that has the frame of a key (`column` is `key`) or of a value."""
    return "__key_schema_id" if column == KEY else "__value_schema_id"


def framed_data(data: bytes | None, headers: Iterable[tuple[str, bytes | None]], column: str) -> bytes | None:
    """Return a key or a value together with its frame: a `HeaderFramed` if a header has the frame, otherwise `data`
    itself. `column`: as in `header_name`."""
    name, frame = header_name(column), None
    for each, value in headers:
        if each == name:
            frame = value
    return data if data is None or frame is None else HeaderFramed(data, frame)


def framed_column(data: Any, headers: Any, column: str) -> list[bytes | None]:
    """Return the keys or values of rows together with their frames, as `framed_data` does. `data`: the Arrow array of
    the bytes. `headers`: the Arrow array of the headers, lists of (key, value); None if the headers are not known.
    `column`: as in `header_name`."""
    found: list[bytes | None] = data.to_pylist()
    if headers is None or headers.null_count == len(headers):
        return found
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    entries = pc.list_flatten(headers)
    is_frame = pc.equal(pc.struct_field(entries, 0), header_name(column))
    rows = pc.list_parent_indices(headers).filter(is_frame).to_pylist()
    frames = dict(zip(rows, pc.struct_field(entries, 1).filter(is_frame).to_pylist(), strict=True))
    for row, frame in frames.items():
        value = found[row]
        if frame is not None and value is not None:
            found[row] = HeaderFramed(value, frame)
    return found


def may_be_framed(data: bytes) -> bool:
    """Whether a key or a value may be framed, if nothing is known about the topic. It may if it has a frame in a
    header, or begins like a frame with an id. A frame with a GUID before the payload is not considered, because no
    serializer writes one."""
    return isinstance(data, HeaderFramed) or (len(data) >= _ID.size and data[0] == ID_MAGIC)


def split_frame(data: bytes) -> FramedPayload:
    """Split a framed key or value into its schema and its payload. Raises `ValueNotDecoded`."""
    if isinstance(data, HeaderFramed):
        found = _schema_of(data.header)
        if found is None:
            shown = data.header[: _GUID.size].hex(" ") or "nothing"
            raise ValueNotDecoded(f"the header of the schema's id has neither an id nor a GUID: it has {shown}")
        schema_id, size = found
        return FramedPayload(schema_id, memoryview(data), memoryview(data.header)[size:])
    found = _schema_of(data)
    if found is None:
        raise ValueNotDecoded(
            "the value is not framed: it begins with neither a zero byte nor the id of a schema, and no header that "
            "was read names one"
        )
    schema_id, size = found
    return FramedPayload(schema_id, memoryview(data)[size:])


def _schema_of(frame: bytes) -> tuple[SchemaId, int] | None:
    """Return the schema that the first bytes name, and their number. Return None if they name none."""
    if len(frame) >= _ID.size and frame[0] == ID_MAGIC:
        return _ID.unpack_from(frame)[1], _ID.size
    if len(frame) >= _GUID.size and frame[0] == GUID_MAGIC:
        return UUID(bytes=_GUID.unpack_from(frame)[1]), _GUID.size
    return None


def message_path(payload: memoryview) -> tuple[list[int], memoryview]:
    """Split a Protobuf payload into the indexes of its message type and the message. Raises `ValueNotDecoded`."""
    count, position = _varint(payload, 0)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueNotDecoded(f"the value has {count} indexes of message types")
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        if index < 0:
            raise ValueNotDecoded(f"the value has the index {index} of a message type")
        indexes.append(index)
    return indexes or [0], payload[position:]


def _varint(payload: memoryview, position: int) -> tuple[int, int]:
    """Read a zigzag varint. Returns it, and the position after it. Raises `ValueNotDecoded`."""
    value = 0
    for count, byte in enumerate(payload[position : position + VARINT_SIZE_MAX]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + count + 1
    raise ValueNotDecoded("the value ends inside the indexes of its message type")
