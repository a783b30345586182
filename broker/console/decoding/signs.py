"""Finds out, by bytes alone, which batches cannot hold a record that is wanted. They are skipped without decoding a
record.

    Wanted ──▶ signs: texts one of which each wanted record holds as it is stored ──▶ Sieve: skip, or decode

A sign is searched for in a stretch of batches as a whole, and in a compressed batch once it is decompressed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from moldau.broker.config.internal_topics import Contents
from moldau.protocol.primitives import MalformedMessage, read_varint
from moldau.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
)
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import decode_record

if TYPE_CHECKING:
    from moldau.broker.console.decoding.selection import Wanted

Signs = Sequence[bytes]
"""Texts of which every wanted record holds at least one; empty if no bytes tell which records are wanted."""
ANYWHERE: Final = "(?s).*(?:", ").*"
"""The beginning and the end that turn an expression into one that may match anywhere in a text."""
_LITERAL: Final = re.compile(r"[^\\.+*?()|\[\]{}^$\ufffd]+")
"""Matches an expression without special characters, which means itself."""
_WORD: Final = re.compile(rb"[^: ]+")
"""The parts of an expression that stand in one piece in a record, even if the expression goes from the name of a header
to its value.
"""
_PLAIN_JSON: Final = re.compile(rb"[0-9A-Za-z_-]+")
_ESCAPED: Final = b"\\u00"
"""The beginning of an escape with which JSON may write any of the characters of `_PLAIN_JSON`."""
_HEAD: Final = Struct(">qi4xb4xhi")
"""Base offset, length, magic, attributes and last offset delta, as in the header of a batch."""
_SPECIAL: Final = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT


def signs_of(wanted: Wanted, *, has_schemas: bool) -> Signs:
    """The signs of the records that are wanted. If there are several conditions, the signs are those of the condition
    with the longest texts.

    There are no signs if parts are masked, because the time of a search must not tell what the masked parts hold, or if
    the searched values are framed by a schema registry (`has_schemas`).
    """
    is_framed = has_schemas and wanted.contents is Contents.PLAIN and wanted.form != "hex"
    if wanted.masks or is_framed:
        return ()
    known: list[Signs] = []
    if wanted.key:
        known.append((wanted.key,))
    if wanted.header is not None:
        name, value = wanted.header
        if "\ufffd" not in name:
            known.append((name.encode(),))
        if value:
            known.append((value,))
    if wanted.field is not None:
        known.append(_signs_of_json(wanted.field[1]))
    if wanted.find:
        known.append(_signs_of_expression(wanted.find.removeprefix(ANYWHERE[0]).removesuffix(ANYWHERE[1])))
    return max((each for each in known if each and all(each)), key=lambda signs: len(signs[0]), default=())


def _signs_of_expression(pattern: str) -> Signs:
    if _LITERAL.fullmatch(pattern) is None:
        return ()
    return (max(_WORD.findall(pattern.encode("utf-8", "surrogateescape")), key=len, default=b""),)


def _signs_of_json(text: str) -> Signs:
    """The signs of a JSON value that has this text, or this number, in a field. There are none for a number that is not
    whole or for a list, because JSON has many forms of it.
    """
    try:
        if isinstance(json.loads(text), (float, list, dict)):
            return ()
    except (ValueError, RecursionError):
        pass
    return (max(_PLAIN_JSON.findall(text.encode("utf-8", "surrogateescape")), key=len, default=b""), _ESCAPED)


class Sieve:
    """Finds the next batch of a buffer that may hold a record that is wanted."""

    def __init__(self, data: bytes, signs: Signs) -> None:
        self._data = data
        self._signs = signs
        self._next = dict.fromkeys(signs, -1)
        """The next position of each sign; the size of the buffer if the sign does not occur any more."""
        if _ESCAPED in signs and b"\\" not in data:  # One byte is found many times as fast as four.
            self._next[_ESCAPED] = len(data)

    def skip(self, position: int) -> tuple[int, int]:
        """Skip batches from `position` on, up to a batch that has to be examined: one that may hold a sign, that is
        compressed, a marker, or part of a transaction. Returns the position of that batch, and the offset after the
        skipped batches; -1 if none was skipped.
        """
        data, unpack = self._data, _HEAD.unpack_from
        last, hit, next_offset = len(data) - HEADER_SIZE, self._hit(position), -1
        while position <= last:
            base_offset, length, magic, attributes, delta = unpack(data, position)
            end = position + LOG_OVERHEAD + length
            if magic != MAGIC or attributes & _SPECIAL or end > hit or length < LENGTH_MIN or delta < 0:
                break
            next_offset = base_offset + delta + 1
            position = end
        return position, next_offset

    def _hit(self, position: int) -> int:
        """The position of the first sign at or after a position."""
        for sign, found in self._next.items():
            if found < position:
                found = self._data.find(sign, position)
                self._next[sign] = found if found >= 0 else len(self._data)
        return min(self._next.values())

    def records_in(self, body: bytes, header: BatchHeader) -> Iterator[Record]:
        """The records of a batch of format 2 that hold a sign. `body` has all records of the batch, decompressed.
        Raises `MalformedMessage`.
        """
        append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        within = Sieve(body, self._signs)
        hit = within._hit(0)
        position = 0
        try:
            for _ in range(header.records_count):
                if hit >= len(body):
                    return
                size, start = read_varint(body, position)
                position = start + size
                if size < 0 or position > len(body):
                    raise MalformedMessage(f"a record of {size} bytes in {len(body) - start}")
                if hit < position:
                    yield decode_record(body, start, header.base_offset, header.base_timestamp, append_time)[0]
                    hit = within._hit(position)
        except IndexError:
            raise MalformedMessage("a record goes past the end of its batch") from None
