"""Keeps the strings of messages within their size. A byte that is not UTF-8 is read as U+FFFD, as in Apache Kafka.

DIVERGES: of a long string it would make three times as many bytes, more than a string may have. Apache Kafka takes it,
and then fails to write the record, the request or the response that contains it. Here such a string is malformed, so
that every string that was read can be written. A message of this node that is too long, because it repeats such a
string, is cut; Apache Kafka fails to write it.
"""

from __future__ import annotations

import codecs
from typing import Final

from moldau.protocol.primitives import TEXT_SIZE_MAX, MalformedMessage

TEXT_ERRORS: Final = "moldau-text"
"""The name of the handler, for `str(data, "utf-8", TEXT_ERRORS)`. It raises `MalformedMessage`."""
CUT_FIELDS: Final = ("error_message", "status_detail")
"""The fields of responses whose texts are cut: they are this node's own, and repeat those of requests."""


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    size = len(error.object)
    if size > TEXT_SIZE_MAX // 3:
        raise MalformedMessage(f"a string of {size} bytes that is not UTF-8")
    return "\ufffd", error.end


codecs.register_error(TEXT_ERRORS, _replaced)


def cut_text(data: bytes) -> bytes:
    """Cut a text in UTF-8 to the size that a string may have."""
    return data[:TEXT_SIZE_MAX].decode(errors="ignore").encode()
