"""Encodes the structs of records, and refuses a struct that cannot be decoded again. Once such a struct is in a log,
each node that reads the log fails at it."""

from __future__ import annotations

import struct

from moldau.protocol.compiler import decode, encode
from moldau.protocol.primitives import TEXT_SIZE_MAX, MalformedMessage
from moldau.protocol.schema import spec_of


class UnreadableRecord(ValueError):
    """Raised if a record must not be written, because no reader could decode it: one of its strings is too long."""


def encode_stored(message: object, version: int) -> bytes:
    """Encode a struct of a record. Raises `UnreadableRecord` if it cannot be decoded again.

    A string may be longer than in the request that it comes from: lists grow, names are joined, and a byte that is not
    UTF-8 becomes U+FFFD, which has three bytes.
    """
    kind = type(message)
    try:
        data = encode(message, version)
        if len(data) > TEXT_SIZE_MAX and version in spec_of(kind).flexible:
            decode(kind, data, version)
    except (struct.error, UnicodeEncodeError, MalformedMessage) as error:
        raise UnreadableRecord(f"{kind.__name__} cannot be stored: {error}") from None
    return data
