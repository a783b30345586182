"""Java's properties files: parses the text of a server.properties into names and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class MalformedProperties(Exception):
    """A text that Java's Properties would not load."""


def read_properties(text: str) -> dict[str, str]:
    """Return the properties of a properties file as values by name. If a name occurs twice, the later line counts.
    Raises `MalformedProperties`."""
    return dict(_split(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that are neither comments nor blank. A line that ends in an odd number of backslashes is joined
    to the next line.
    """
    pending: str | None = None
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending = ""
        pending += line
        backslashes = len(pending) - len(pending.rstrip("\\"))
        if backslashes % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = None
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Name and value of a line: the name ends at the first =, : or blank that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append("" if character == "\\" else character)
            continue
        escaped = text[position]
        position += 1
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        position += 4
        if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise MalformedProperties(f"\\u must be followed by four hexadecimal digits, not by {digits!r}")
        out.append(chr(int(digits, 16)))
    # Two halves of a surrogate pair stand for one character, as in Java's strings.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
