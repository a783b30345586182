"""Requests and replies as they travel: a size (int32), a header, and the message.

    request    key (int16) · version (int16) · correlation id (int32) · client id (nullable string) · tags · message
    reply      correlation id (int32) · tags · message

The header of a request has tags in the flexible versions of its message, that of a reply in the versions from
`header_flexible_from` on. Nodes of Moldau send no tags in headers, and skip those that they receive.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.protocol.compiler import decode, encode
from moldau.protocol.primitives import skip_tags
from moldau.protocol.schema import header_flexible_from, response_class_of, spec_of

SIZE: Final = Struct(">i")
REQUEST_HEAD: Final = Struct(">hhih")
"""Key, version, correlation id, and the size of the client id in bytes (-1 if there is no client id)."""
SIZED_REQUEST_HEAD: Final = Struct(">ihhi")
"""The size of the frame, then key, version and correlation id of the request."""
CLIENT_ID_POSITION: Final = 8
"""The position of the client id, with its size, in the header of a request."""


def sized(frame: bytes) -> bytes:
    return SIZE.pack(len(frame)) + frame


def request_head(key: int, version: int, correlation_id: int, client_id: bytes | None = None) -> bytes:
    """The header of a request without tags."""
    if client_id is None:
        return REQUEST_HEAD.pack(key, version, correlation_id, -1)
    return REQUEST_HEAD.pack(key, version, correlation_id, len(client_id)) + client_id


def request_header(cls: type[object], version: int, correlation_id: int, client_id: bytes | None = None) -> bytes:
    """The header of a request of this class."""
    key = spec_of(cls).key
    assert key is not None, "only requests are sent"
    return request_head(key, version, correlation_id, client_id) + b"\0" * (version >= header_flexible_from(cls))


def request_frame(request: object, version: int, correlation_id: int, client_id: bytes | None = None) -> bytes:
    """A request with its header, without the size before them."""
    return request_header(type(request), version, correlation_id, client_id) + encode(request, version)


def correlation_id_of(reply: bytes | memoryview) -> int:
    """The correlation id of a reply, which is given without the size before it."""
    correlation_id: int = SIZE.unpack_from(reply)[0]
    return correlation_id


def response_of(cls: type[object], version: int, reply: bytes | memoryview) -> object:
    """Decode the response in a reply to a request of this class. The reply is given without the size before it. Raises
    `MalformedMessage`."""
    response_class = response_class_of(cls)
    data = memoryview(reply)
    has_tags = version >= header_flexible_from(response_class)
    return decode(response_class, data[skip_tags(data, SIZE.size) if has_tags else SIZE.size :], version)
