"""Formats keys, values and headers as texts of bounded length."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

KEY_SHOWN: Final = 200
"""The most characters of a key, and of the name and the value of a header."""
FORMS: Final = ("auto", "json", "text", "hex")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShownBytes:
    """A key, a value or bytes of a header, formatted as text."""

    text: str | None
    """The text; None for a null."""
    form: str
    """The form of the text: json, text or hex; decoded for the fields of a known record type."""
    size: int
    """The size of the key or value in bytes."""
    is_cut: bool


NULL: Final = ShownBytes(None, "text", 0, False)


def escape_unprintable(text: str) -> str:
    """Return the text with an escape for each character that a browser would not show, or would act on."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\t\n" else ascii(each)[1:-1] for each in text)


def cut_printable(text: str, shown_max: int) -> tuple[str, bool]:
    """Return the first `shown_max` characters of the text as `escape_unprintable` gives it, and whether
    there are more.
    """
    shown = escape_unprintable(text[:shown_max])
    return shown[:shown_max], len(text) > shown_max or len(shown) > shown_max


def pretty_json(value: object, shown_max: int) -> str:
    """Return a JSON value as indented text. Stops soon after `shown_max` characters: the caller cuts the text. The
    value must not be nested deeper than `parse_json` allows.
    """
    from moldau.tables.values.exact_json import exact_text

    made: list[str] = []
    size = 0
    for piece in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(value):
        made.append(exact_text(piece)[: shown_max + 1])
        size += len(made[-1])
        if size > shown_max:
            break
    return "".join(made)


def json_as_text(value: object, form: str, size: int, shown_max: int) -> ShownBytes:
    """Return the text of a JSON value for display, of at most `shown_max` characters. `size` is the number of bytes
    from which the value was decoded, `form` the name of the form in the result.
    """
    text, is_cut = cut_printable(pretty_json(value, shown_max), shown_max)
    return ShownBytes(text, form, size, is_cut)


def bytes_as_text(data: bytes | None, form: str, shown_max: int) -> ShownBytes:
    """Convert bytes to text for display, of at most `shown_max` characters. `form` is `json`, `text`, `hex` or `auto`.
    `json` and `auto` show a JSON object or array of at most `4 * shown_max` bytes as indented JSON. `json` shows other
    bytes as text. `auto` shows other printable UTF-8 as text, and everything else as hex.
    """
    if data is None:
        return NULL
    part = data[: shown_max * 4]
    if form == "hex":
        return _hex(data, shown_max)
    try:
        text = part.decode("utf-8") if len(part) == len(data) else part.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        if form == "auto":
            return _hex(data, shown_max)
        text = part.decode("utf-8", "replace")
    if form in ("auto", "json") and len(part) == len(data) and text[:1] in ("{", "["):
        from moldau.tables.values.bounds import HostileValue, parse_json  # With it come the libraries of HTTP.
        from moldau.tables.values.exact_json import exact_number

        try:
            return json_as_text(parse_json(data, exact_number), "json", len(data), shown_max)
        except (ValueError, HostileValue):
            pass
    if form == "auto" and not all(each.isprintable() or each in "\t\r\n" for each in text):
        return _hex(data, shown_max)
    shown, is_cut = cut_printable(text, shown_max)
    return ShownBytes(shown, "text", len(data), is_cut or len(part) < len(data))


def _hex(data: bytes, shown_max: int) -> ShownBytes:
    return ShownBytes(data[: shown_max // 3].hex(" "), "hex", len(data), len(data) > shown_max // 3)
