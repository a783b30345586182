"""Encodes the structs of records. A struct that no reader takes is refused, because it would stay in a log, and each
node that reads the log would fail at it.
"""

from __future__ import annotations

import struct

from moldau.protocol.compiler import decode, encode
from moldau.protocol.primitives import TEXT_SIZE_MAX, MalformedMessage
from moldau.protocol.schema import spec_of


class UnreadableRecord(ValueError):
    """Raised if a record has a string that is too long for its readers, so that it must not be written."""


def encode_stored(message: object, version: int) -> bytes:
    """Encode a struct of a record. Raises `UnreadableRecord`.

    A string may be longer than in the request that it comes from: a list grows, names are joined, and a byte that is
    not UTF-8 is three bytes as U+FFFD.
    """
    kind = type(message)
    try:
        data = encode(message, version)
        if len(data) > TEXT_SIZE_MAX and version in spec_of(kind).flexible:
            decode(kind, data, version)
    except (struct.error, UnicodeEncodeError, MalformedMessage) as error:
        raise UnreadableRecord(f"{kind.__name__} cannot be stored: {error}") from None
    return data
