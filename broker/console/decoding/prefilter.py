"""Skips batches that cannot contain a matching record. It searches their bytes for signs, and decodes no records. The
signs are bytes of which each matching record contains at least one.

    RecordFilter ──▶ signs ──▶ BatchPrefilter: skip a batch without a sign, decode any other

Uncompressed batches are searched for a sign all at once, a compressed batch after it is decompressed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from moldau.broker.config.internal_topics import RecordKind
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
    from moldau.broker.console.decoding.selection import RecordFilter

RequiredBytes = Sequence[bytes]
"""Bytes of which every matching record contains at least one. Empty if no bytes are common to the matching records."""
ANYWHERE: Final = "(?s).*(?:", ").*"
"""The prefix and the suffix that make an expression match anywhere in a text."""
_LITERAL: Final = re.compile(r"[^\\.+*?()|\[\]{}^$\ufffd]+")
"""Matches a regular expression without special characters, which matches only its own text."""
_WORD: Final = re.compile(rb"[^: ]+")
"""The parts of an expression that a matching record contains in one piece, even if the match reaches from a header's
name to its value.
"""
_PLAIN_JSON: Final = re.compile(rb"[0-9A-Za-z_-]+")
_ESCAPED: Final = b"\\u00"
"""The beginning of the JSON escapes that may stand for a character of `_PLAIN_JSON`."""
_HEAD: Final = Struct(">qi4xb4xhi")
"""The fields at the beginning of a batch header: base offset, length, magic, attributes and last offset delta."""
_SPECIAL: Final = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT


def required_bytes_of(wanted: RecordFilter, *, has_schemas: bool) -> RequiredBytes:
    """The signs of the records that match `wanted`; empty if these records have none in common. Of several conditions,
    the one with the longest sign is used.

    The result is empty if parts of the records are masked, because the time of a search must not reveal the masked
    parts. It is empty, too, if the values may be in the format of a schema registry (`has_schemas`).
    """
    is_framed = has_schemas and wanted.contents is RecordKind.PLAIN and wanted.form != "hex"
    if wanted.masks or is_framed:
        return ()
    known: list[RequiredBytes] = []
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


def _signs_of_expression(pattern: str) -> RequiredBytes:
    if _LITERAL.fullmatch(pattern) is None:
        return ()
    return (max(_WORD.findall(pattern.encode("utf-8", "surrogateescape")), key=len, default=b""),)


def _signs_of_json(text: str) -> RequiredBytes:
    """The signs of JSON values with a field whose value is `text`. There are none if `text` is a fraction, a list or an
    object, because JSON has many forms of these.
    """
    try:
        if isinstance(json.loads(text), (float, list, dict)):
            return ()
    except (ValueError, RecursionError):
        pass
    return (max(_PLAIN_JSON.findall(text.encode("utf-8", "surrogateescape")), key=len, default=b""), _ESCAPED)


@cache
def _find_in_memory() -> Callable[[int, int, bytes, int], int | None] | None:
    """`memmem` of the C library, which finds bytes about three times as fast as `bytes.find`: the address of the first
    occurrence, or None. None if there is no such function.
    """
    try:
        import ctypes

        find = ctypes.CDLL(None).memmem
    except (ImportError, OSError, AttributeError):
        return None
    find.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    find.restype = ctypes.c_void_p
    return find


class ByteSearch:
    """Finds bytes in other bytes, with `memmem` of the C library if there is one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._find = _find_in_memory()
        self._address = 0
        if self._find is not None:
            import ctypes

            self._address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0

    def find(self, sought: bytes, position: int) -> int:
        """Like `bytes.find`: the position of the first occurrence at or after `position`; -1 if there is none."""
        left = len(self._data) - position
        if self._find is None or left <= 0 or len(sought) <= 1:
            return self._data.find(sought, position)
        found = self._find(self._address + position, left, sought, len(sought))
        return -1 if found is None else found - self._address


class BatchPrefilter:
    """Finds the batches of a buffer, and the records of a batch, that contain a sign."""

    def __init__(self, data: bytes, signs: RequiredBytes) -> None:
        self._data = data
        self._haystack = ByteSearch(data)
        self._signs = signs
        self._next = dict.fromkeys(signs, -1)
        """The position of the next occurrence of each sign; the size of the buffer if there is none."""

    def skip(self, position: int) -> tuple[int, int]:
        """Skip the batches from `position` on that contain no sign. Compressed batches, control batches and batches of
        transactions are never skipped. Returns the position of the first batch that must be examined, and the offset
        after the skipped batches, which is -1 if none was skipped.
        """
        data, unpack = self._data, _HEAD.unpack_from
        last, next_offset = len(data) - HEADER_SIZE, -1
        while position <= last:
            base_offset, length, magic, attributes, delta = unpack(data, position)
            end = position + LOG_OVERHEAD + length
            if magic != MAGIC or attributes & _SPECIAL or length < LENGTH_MIN or delta < 0:
                break
            if end > self._hit(position):  # Only now: a sign means nothing in compressed bytes.
                break
            next_offset = base_offset + delta + 1
            position = end
        return position, next_offset

    def _hit(self, position: int) -> int:
        """The position of the first sign at or after `position`; the size of the buffer if there is none."""
        for sign, found in self._next.items():
            if found < position:
                find = self._haystack.find
                found = find(sign[:1] if sign == _ESCAPED else sign, position)
                if sign == _ESCAPED and found >= 0:  # One byte is found many times as fast as four.
                    found = find(sign, found)
                self._next[sign] = found if found >= 0 else len(self._data)
        return min(self._next.values())

    def records_in(self, body: bytes, header: BatchHeader) -> Iterator[Record]:
        """The records of a batch (magic 2) that contain a sign. `body` is the decompressed records of the batch. Raises
        `MalformedMessage`.
        """
        append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        within = BatchPrefilter(body, self._signs)
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
