"""Requests and responses as a connection carries them: a size (int32), a header, and the message.

    request    key (int16) · version (int16) · correlation id (int32) · client id (nullable string) · tags · message
    reply      correlation id (int32) · tags · message

The header of a request has tags in the flexible versions of its message. The header of a response has tags from the
version `header_flexible_from` on. Nodes of Moldau send no tags in headers, and skip the tags that they receive.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.protocol.compiler import decode, encode
from moldau.protocol.primitives import MalformedMessage, skip_tags
from moldau.protocol.schema import header_flexible_from, response_class_of, spec_of

FRAME_SIZE_FORMAT: Final = Struct(">i")
REQUEST_HEAD: Final = Struct(">hhih")
"""The format of a request header up to the client id: API key, version, correlation id, and the size of the client id
in bytes (-1 if there is no client id)."""
SIZED_REQUEST_HEAD: Final = Struct(">ihhi")
"""The format of the first bytes of a request frame: the size of the frame, then API key, version and correlation id."""
CLIENT_ID_POSITION: Final = 8
"""The position of the client id, which begins with its size, in a request header."""


def size_prefixed(frame: bytes) -> bytes:
    return FRAME_SIZE_FORMAT.pack(len(frame)) + frame


def request_head(key: int, version: int, correlation_id: int, client_id: bytes | None = None) -> bytes:
    """The encoded header of a request, without tags."""
    if client_id is None:
        return REQUEST_HEAD.pack(key, version, correlation_id, -1)
    return REQUEST_HEAD.pack(key, version, correlation_id, len(client_id)) + client_id


def request_header(cls: type[object], version: int, correlation_id: int, client_id: bytes | None = None) -> bytes:
    """The encoded header of a request of the class `cls`."""
    key = spec_of(cls).key
    assert key is not None, "only requests are sent"
    return request_head(key, version, correlation_id, client_id) + b"\0" * (version >= header_flexible_from(cls))


def request_frame(request: object, version: int, correlation_id: int, client_id: bytes | None = None) -> bytes:
    """The encoded request with its header, without the size that precedes the header."""
    return request_header(type(request), version, correlation_id, client_id) + encode(request, version)


def correlation_id_of(reply: bytes | memoryview) -> int:
    """The correlation id of an encoded reply. `reply` does not have the size that precedes the header. Raises
    `MalformedMessage`."""
    if len(reply) < FRAME_SIZE_FORMAT.size:
        raise MalformedMessage("the header of the reply is cut short")
    correlation_id: int = FRAME_SIZE_FORMAT.unpack_from(reply)[0]
    return correlation_id


def response_of(cls: type[object], version: int, reply: bytes | memoryview) -> object:
    """Decode the reply to a request of the class `cls`. `reply` does not have the size that precedes the header. Raises
    `MalformedMessage`."""
    response_class = response_class_of(cls)
    data = memoryview(reply)
    position = FRAME_SIZE_FORMAT.size
    if version >= header_flexible_from(response_class):
        try:
            position = skip_tags(data, position)
        except IndexError:
            raise MalformedMessage("the header of the reply is cut short") from None
    return decode(response_class, data[position:], version)
