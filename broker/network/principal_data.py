"""A principal as brokers pass it on in an Envelope: a version, type and name as compact strings, whether a delegation
token authenticated it, tags.
"""

from __future__ import annotations

from moldau.protocol.primitives import MalformedMessage, read_uvarint, uvarint
from moldau.protocol.tagged_section import skip_tags
from moldau.security.principal import Principal

_VERSION_0 = b"\0\0"


def written_principal(principal: Principal) -> bytes:
    """The bytes of a principal, in version 0."""
    texts = (principal.type.encode(), principal.name.encode())
    body = b"".join(uvarint(len(text) + 1) + text for text in texts)
    return _VERSION_0 + body + bytes((principal.is_token_authenticated, 0))


def read_principal(data: bytes | None) -> Principal:
    """Parse a principal. Raises `MalformedMessage`, also for a principal without a type or a name, or IndexError."""
    if data is None or data[:2] != _VERSION_0:
        raise MalformedMessage("the principal has no version that is known")
    position = 2
    texts = []
    for _ in ("type", "name"):
        size, position = read_uvarint(data, position)
        end = position + size - 1
        if size < 2 or end >= len(data):
            raise MalformedMessage("the principal ends within its name, or has none")
        try:
            texts.append(data[position:end].decode())
        except UnicodeDecodeError:
            raise MalformedMessage("the principal's name is not UTF-8") from None
        position = end
    skip_tags(data, position + 1)
    return Principal(texts[0], texts[1], data[position] != 0)
