"""Reads the facts kept beside it: what Apache Kafka 4.3.1 says of its messages, and the bytes that it writes.

`schemas.txt` has a line for each message (name, kind, API key or record type, versions, flexible versions) and below it
a line for each field, indented by nesting, in wire order: name, type (`[]` an array, `{}` a struct), versions, then
`null VERSIONS`, `tag NUMBER` and `= DEFAULT` if they apply. Ranges are cut to the message's own versions. A default
that is zero, empty, or a struct of defaults is not written. The messages and versions that 4.3.1 lacks are those of
4.4.0, as are the error codes from 134 on.

`java_bytes.txt` has a line for each message and run of versions: the bytes of two samples (the rule is that of
`sampling.py`, with its counter starting at 0 and at 4), and of the message as its class builds it. "." is no bytes.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from pathlib import Path
from typing import NamedTuple

import moldau.protocol.messages
import moldau.protocol.records
from moldau.protocol.schema import NEVER, Range, spec_of

HERE = Path(__file__).parent


class FieldFact(NamedTuple):
    name: str
    type: str
    versions: Range
    nullable: Range
    tag: int | None
    default: str
    fields: tuple[FieldFact, ...]


class MessageFact(NamedTuple):
    name: str
    kind: str
    key: int | None
    versions: Range
    flexible: Range
    fields: tuple[FieldFact, ...]


class JavaBytes(NamedTuple):
    samples: tuple[bytes, bytes]
    default: bytes


@functools.cache
def message_facts() -> dict[str, MessageFact]:
    """Every message of the release by name."""
    lines = [_Line(text) for text in (HERE / "schemas.txt").read_text().splitlines()]
    starts = [index for index, line in enumerate(lines) if line.depth == 0] + [len(lines)]
    facts: dict[str, MessageFact] = {}
    for start, stop in itertools.pairwise(starts):
        name, kind, key, versions, _, flexible = lines[start].words
        fields, _ = _fields(lines, start + 1, stop, 1)
        number = None if key == "-" else int(key)
        facts[name] = MessageFact(name, kind, number, Range.parse(versions), Range.parse(flexible), fields)
    return facts


class _Line:
    def __init__(self, text: str) -> None:
        self.words = text.split(" = ")[0].split()
        self.default = text.split(" = ")[1] if " = " in text else ""
        self.depth = len(text) - len(text.lstrip())


def _fields(lines: list[_Line], start: int, stop: int, depth: int) -> tuple[tuple[FieldFact, ...], int]:
    found = []
    while start < stop and lines[start].depth == depth:
        line = lines[start]
        name, kind, versions, *marks = line.words
        by_mark = dict(zip(marks[::2], marks[1::2], strict=True))
        children, start = _fields(lines, start + 1, stop, depth + 1)
        null = Range.parse(by_mark["null"]) if "null" in by_mark else NEVER
        number = int(by_mark["tag"]) if "tag" in by_mark else None
        found.append(FieldFact(name, kind, Range.parse(versions), null, number, line.default, children))
    return tuple(found), start


@functools.cache
def java_bytes() -> dict[tuple[str, int], JavaBytes]:
    """What the Java classes write, by message and version."""
    found = {}
    for line in (HERE / "java_bytes.txt").read_text().splitlines():
        name, versions, *pieces = line.split()
        first, second, default = (b"" if piece == "." else bytes.fromhex(piece) for piece in pieces)
        for version in versions_of(Range.parse(versions)):
            found[name, version] = JavaBytes((first, second), default)
    return found


def error_names() -> dict[int, str]:
    """Every error code of the release."""
    pairs = (line.split() for line in (HERE / "errors.txt").read_text().splitlines())
    return {int(code): name for code, name in pairs}


@functools.cache
def declared() -> dict[str, type[object]]:
    """Every message and record class that the project declares, by name."""
    found: dict[str, type[object]] = {}
    for package in (moldau.protocol.messages, moldau.protocol.records):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            names = vars(importlib.import_module(module.name))
            for name, cls in names.items():
                if isinstance(cls, type) and cls.__dict__.get("__spec__") is not None and cls.__module__ == module.name:
                    assert name not in found, f"{name} is declared twice"
                    found[name] = cls
    return found


def versions_of(versions: Range) -> range:
    return range(versions.first, versions.last + 1)


def served_versions(cls: type[object]) -> range:
    """The versions of a declared class."""
    return versions_of(spec_of(cls).versions)
