"""The filters and the formats of consumed records."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.broker.cli.daily.failures import Failure, WrongArguments
from moldau.broker.cli.daily.output import time_text
from moldau.protocol.record_batch import INT32
from moldau.protocol.record_builder import Record, RecordHeader

if TYPE_CHECKING:
    from moldau.broker.cli.daily.session import Session

_TOKEN: Final = re.compile(r"%[tpoTksKShR%]|\\[nrt0\\]|\\x[0-9a-fA-F]{2}")
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_QUOTED: Final = frozenset(',"\r\n')
"""The characters because of which a cell of CSV is quoted."""
CSV_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


class Place(NamedTuple):
    """A record with its topic and partition."""

    topic: str
    partition: int
    record: Record


Formatter = Callable[[Place], bytes]
Filter = Callable[[Record], bool]
FIELDS_SHOWN_MAX: Final = 20
"""The most names of fields that a message lists."""


def formatter_of(form: str) -> Formatter:
    """The function that formats a record for printing. Raises `WrongArguments`."""
    known: dict[str, Formatter] = {"value": _value, "line": _line, "json": json_line, "csv": _csv}
    if form in known:
        return known[form]
    if "%" not in form:
        raise WrongArguments(f"--format {form}: it is value, line, csv, json or a text with %s for the value")
    return _by_tokens(form)


def _value(place: Place) -> bytes:
    return (place.record.value or b"") + b"\n"


def _line(place: Place) -> bytes:
    record = place.record
    key = "null" if record.key is None else record.key.decode("utf-8", "replace")
    value = "null" if record.value is None else record.value.decode("utf-8", "replace")
    head = f"{place.partition:>3} {record.offset:>8}  {time_text(record.timestamp)}"
    headers = "".join(f"  {name}={_text(data)}" for name, data in record.headers)
    return f"{head}  {key}  {value}{headers}\n".encode()


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "replace")


def _csv(place: Place) -> bytes:
    """A record as a line of CSV. As in PostgreSQL, nothing between two commas is none, and "" is an empty text."""
    record = place.record
    row = (place.topic, place.partition, record.offset, record.timestamp, _cell(record.key), _cell(record.value))
    return f"{','.join(map(str, row))}\n".encode()


def _cell(data: bytes | None) -> str:
    if data is None:
        return ""
    text = data.decode("utf-8", "replace")
    return text if text and _QUOTED.isdisjoint(text) else '"{}"'.format(text.replace('"', '""'))


def json_line(place: Place) -> bytes:
    """A record as a JSON object, which `moldau produce --format records` takes."""
    record = place.record
    row: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
    }
    if record.headers:
        row["headers"] = [{"name": name, **_json_bytes("value", data)} for name, data in record.headers]
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """A field of a JSON object that holds bytes: as text, or as base64 under NAME_base64 if the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def _by_tokens(form: str) -> Formatter:
    """Make a formatter from a text with kcat's tokens, such as %k. Raises `WrongArguments`."""
    parts: list[bytes | str] = []
    position = 0
    for match in _TOKEN.finditer(form):
        parts.append(form[position : match.start()].encode())
        token = match[0]
        if token == "%%":
            parts.append(b"%")
        elif token.startswith("\\x"):
            parts.append(bytes([int(token[2:], 16)]))
        else:
            parts.append(_ESCAPES[token[1]] if token[0] == "\\" else token[1])
        position = match.end()
    rest = form[position:].encode()
    if re.search(r"%(?!%)", re.sub(_TOKEN, "", form)):
        raise WrongArguments(f"--format {form}: after % stands one of t p o T k s h K S R")

    def show(place: Place) -> bytes:
        return b"".join(each if isinstance(each, bytes) else _token(each, place) for each in parts) + rest

    return show


def _token(token: str, place: Place) -> bytes:
    record = place.record
    if token in "ks":
        return (record.key if token == "k" else record.value) or b""
    if token in "KS":
        data = record.key if token == "K" else record.value
        return b"-1" if data is None else str(len(data)).encode()
    if token == "R":
        return INT32.pack(-1 if record.value is None else len(record.value))
    if token == "h":
        return ",".join(f"{name}={'NULL' if data is None else _text(data)}" for name, data in record.headers).encode()
    values = {"t": place.topic, "p": place.partition, "o": record.offset, "T": record.timestamp}
    return str(values[token]).encode()


class FieldsSeen:
    """Notes which fields of `--where` occurred in the compared values, to distinguish a misspelled field name from a
    value that does not occur. Values of records that an earlier filter left out are not compared.
    """

    def __init__(self) -> None:
        self.present: set[str] = set()
        """The fields that a value has had."""
        self.absent: dict[str, None] = {}
        """The fields that were looked for, and that no value has had yet."""
        self.names: dict[str, None] = {}
        """The first names at the top of the values that lacked a field."""

    def tell(self, session: Session) -> None:
        """Write a line to standard error about fields that no compared value had. Their names may be misspelled."""
        note = self.note()
        if note is not None:
            session.note(note, "yellow")

    def note(self) -> str | None:
        """A sentence about the fields that no compared value had. None if there are no such fields, or if no value was
        an object.
        """
        from difflib import get_close_matches

        if not self.absent or not self.names:
            return None
        hints = [close[0] for path in self.absent if (close := get_close_matches(path, self.names, 1))]
        hint = f"did you mean {', '.join(hints)}?" if hints else f"the fields are {', '.join(self.names)}"
        return f"none of the compared values has the field {', '.join(self.absent)}; {hint}"


def filter_of(
    key: str | None, pattern: str | None, headers: list[str], fields: list[str], seen: FieldsSeen | None = None
) -> Filter:
    """Make a filter from the options `--key`, `--grep`, `--header` and `--where`: a record must pass all that are
    given. The filter notes in `seen` which fields the values have. Raises `WrongArguments`.
    """
    seen = seen or FieldsSeen()
    tests: list[Filter] = []
    if key is not None:
        wanted_key = key.encode()
        tests.append(lambda record: record.key == wanted_key)
    if pattern is not None:
        try:
            search = re.compile(pattern.encode()).search
        except re.error as problem:
            raise WrongArguments(f"--grep {pattern} is not a regular expression: {problem}") from None
        tests.append(lambda record: bool(search(record.value or b"") or search(record.key or b"")))
    tests += [_header_filter(each) for each in headers]
    tests += [_field_filter(each, seen) for each in fields]
    return lambda record: all(test(record) for test in tests)


def _header_filter(given: str) -> Filter:
    name, has_value, text = given.partition("=")
    value = text.encode()

    def matches(header: RecordHeader) -> bool:
        return header[0] == name and (not has_value or header[1] == value)

    return lambda record: any(matches(each) for each in record.headers)


def _field_filter(given: str, seen: FieldsSeen) -> Filter:
    path, is_pair, text = given.partition("=")
    if not is_pair:
        raise WrongArguments(f"--where {given} is not FIELD=VALUE")

    def matches(record: Record) -> bool:
        try:
            return has_value(json.loads(record.value or b""))
        except ValueError:
            return False
        except RecursionError:
            raise Failure(
                f"the value at offset {record.offset} is JSON that is nested too deeply for --where"
            ) from None

    def has_value(found: Any) -> bool:
        value = found
        for name in [path] if isinstance(found, dict) and path in found else path.split("."):
            if not isinstance(found, dict) or name not in found:
                if path not in seen.present and isinstance(value, dict):
                    seen.absent[path] = None
                    seen.names |= dict.fromkeys([*value][: FIELDS_SHOWN_MAX - len(seen.names)])
                return False
            found = found[name]
        if path not in seen.present:
            seen.present.add(path)
            seen.absent.pop(path, None)
        return text == (found if isinstance(found, str) else json.dumps(found))

    return matches
