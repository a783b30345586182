"""Reading the records of one partition for a page: from an offset on, or back from the end, as far as a budget allows.

    offsets ──▶ Fetch, a piece of at most `PIECE_SIZE` ──▶ an executor thread decodes and matches ──▶ shown records

Pieces are decoded in an executor thread, because a batch may expand to megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from moldau.broker.config.internal_topics import Contents
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import EXPANDED_SIZE_MAX, Fetched, fetch
from moldau.broker.console.masking import Masks
from moldau.broker.console.page import error_name, printable
from moldau.broker.console.partitions import Partition
from moldau.broker.console.schemas import Schemas
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of

PIECE_SIZE: Final = 1 << 18
WINDOW_FIRST, WINDOW_MAX = 8, 10_000
"""The offsets of the first window on the way back from the end, and the most of one: a window is read as a whole, so
the first one is small enough for records of a megabyte.
"""
VALUE_SHOWN: Final = 2_000
KEY_SHOWN: Final = 200
WHOLE_SHOWN: Final = 200_000
"""Characters of a value in a list, of a key, and of the value of one record alone."""
HEADERS_SHOWN: Final = 20
FORMS: Final = ("auto", "json", "text", "hex")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShownBytes:
    """A key or a value as text."""

    text: str | None
    """None for null."""
    form: str
    """json, text, hex, or decoded for a record of an internal topic."""
    size: int
    """Bytes."""
    is_cut: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShownRecord:
    partition: int
    offset: int
    timestamp: int
    key: ShownBytes
    value: ShownBytes
    headers: list[tuple[str, str]]
    notes: str
    """What it is besides a record: a marker, a record of an aborted transaction, a batch that cannot be read."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wanted:
    """Which records are shown, and how."""

    is_committed: bool
    """Whether only records are shown that a read_committed consumer receives."""
    key: bytes | None
    """The key; None for any."""
    find: Callable[[str], object] | None
    """Matches a whole text; None for any."""
    place: str
    """Where `find` looks: any, key, value or headers."""
    form: str
    contents: Contents
    is_whole: bool
    masks: Masks
    schemas: Schemas | None
    """None where no registry is set, or bytes are wanted as they are."""


@dataclass(slots=True)
class Budget:
    """What one page may read."""

    bytes_left: int
    deadline_ms: int
    """By the monotonic clock."""


@dataclass(slots=True)
class Found:
    """What was read of a partition."""

    records: list[ShownRecord]
    next_offset: int
    """Where reading goes on: forward from here, or back from here."""
    is_end: bool
    """Whether there is nothing more."""
    error: str = ""


async def read_forward(
    client: KafkaClient, key: Partition, offset: int, end: int, limit: int, wanted: Wanted, budget: Budget
) -> Found:
    """The first `limit` records that match from an offset on, up to `end`."""
    found = Found([], offset, False)
    isolation = int(wanted.is_committed)
    now_ms, offload = client.ports.environment.monotonic_ms, client.ports.environment.offload
    while found.next_offset < end and len(found.records) < limit:
        if budget.bytes_left <= 0 or now_ms() > budget.deadline_ms:
            return found
        fetched = await fetch(client, key, found.next_offset, PIECE_SIZE, isolation)
        if fetched is None:
            found.error = "the leader does not answer"
            return found
        if fetched.error:
            found.error = error_name(fetched.error)
            return found
        if not fetched.records:
            break
        budget.bytes_left -= len(fetched.records)
        left = limit - len(found.records)
        more, next_offset = await offload(partial(select, key[1], fetched, found.next_offset, end, left, wanted))
        found.records += more
        if next_offset <= found.next_offset:
            break
        found.next_offset = next_offset
    found.is_end = found.next_offset >= end or len(found.records) < limit
    return found


async def read_back(
    client: KafkaClient, key: Partition, first: int, end: int, limit: int, wanted: Wanted, budget: Budget
) -> Found:
    """The last `limit` records that match before `end`, in the order of their offsets. They are looked for in windows
    that grow.
    """
    found = Found([], end, False)
    size = min(limit, WINDOW_FIRST)
    while found.next_offset > first and len(found.records) < limit:
        low = max(first, found.next_offset - size)
        window = await read_forward(client, key, low, found.next_offset, WINDOW_MAX, wanted, budget)
        if window.error or not window.is_end:
            found.error = window.error
            return found
        kept = window.records[-(limit - len(found.records)) :]
        is_cut = len(kept) < len(window.records)
        found.records = kept + found.records
        found.next_offset = kept[0].offset if is_cut else low
        size = min(size * 4, WINDOW_MAX)
    found.is_end = found.next_offset <= first
    return found


def select(
    partition: int, fetched: Fetched, offset: int, end: int, limit: int, wanted: Wanted
) -> tuple[list[ShownRecord], int]:
    """The records of fetched batches that match, at most `limit`, and the offset where reading goes on. It may run in
    any thread.
    """
    shown: list[ShownRecord] = []
    open_aborts: dict[int, list[int]] = {}
    for each in sorted(fetched.aborted, key=lambda each: each.first_offset):
        open_aborts.setdefault(each.producer_id, []).append(each.first_offset)
    data = bytes(fetched.records)
    for position, header in iterate_batches(data):
        if header.base_offset >= end:
            return shown, end
        if header.last_offset < offset:
            continue
        firsts = open_aborts.get(header.producer_id, [])
        is_aborted = bool(firsts) and header.is_transactional and firsts[0] <= header.last_offset
        if header.is_control and is_aborted:
            firsts.pop(0)  # The marker ends the aborted transaction.
        if wanted.is_committed and (header.is_control or is_aborted):
            offset = header.next_offset
            continue
        try:
            for record in records_of(data, position, header, size_max=EXPANDED_SIZE_MAX):
                if not offset <= record.offset < end:
                    continue
                if len(shown) == limit:
                    return shown, record.offset
                note = ""
                if not header.is_control:
                    if wanted.schemas is not None:
                        record, note = wanted.schemas.readable(record)
                    if wanted.masks:
                        record = wanted.masks.applied(record)
                if matches(record, wanted):
                    shown.append(show(partition, record, wanted, note, is_control=header.is_control))
        except MalformedMessage as problem:
            shown.append(_problem(partition, max(offset, header.base_offset), header.size, str(problem)))
        offset = header.next_offset
    return shown, min(offset, end)


def matches(record: Record, wanted: Wanted) -> bool:
    """Whether a record has the key, and a text that the expression matches."""
    if wanted.key is not None and record.key != wanted.key:
        return False
    if wanted.find is None:
        return True
    texts: list[bytes] = []
    if wanted.place in ("any", "key"):
        texts.append(record.key or b"")
    if wanted.place in ("any", "value"):
        texts.append(record.value or b"")
    if wanted.place in ("any", "headers"):
        texts += (f"{name}: ".encode() + (value or b"") for name, value in record.headers)
    find = wanted.find
    return any(find(text.decode("utf-8", "replace")) for text in texts)


def show(partition: int, record: Record, wanted: Wanted, notes: str = "", *, is_control: bool) -> ShownRecord:
    """A record as text, with notes."""
    value_max = WHOLE_SHOWN if wanted.is_whole else VALUE_SHOWN
    if is_control or wanted.contents is not Contents.PLAIN:
        from moldau.broker.console.record_contents import contents_of  # It declares the records of all coordinators.

        decoded = contents_of(record, wanted.contents, is_control=is_control)
        key = _decoded(decoded.pop("key", None), record.key, KEY_SHOWN)
        value = _decoded(decoded.pop("value", None), record.value, value_max)
        notes = ", ".join(f"{name} {each}" for name, each in decoded.items())
    else:
        key = bytes_as_text(record.key, wanted.form, KEY_SHOWN)
        value = bytes_as_text(record.value, wanted.form, value_max)
    headers = [
        (printable(name), bytes_as_text(each, "auto", KEY_SHOWN).text or "")
        for name, each in record.headers[:HEADERS_SHOWN]
    ]
    if len(record.headers) > HEADERS_SHOWN:
        notes = f"{notes}{', ' if notes else ''}{len(record.headers) - HEADERS_SHOWN} more headers"
    return ShownRecord(partition, record.offset, record.timestamp, key, value, headers, notes)


def _decoded(value: object, data: bytes | None, shown_max: int) -> ShownBytes:
    if value is None:
        return ShownBytes(None, "text", 0, False)
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    return ShownBytes(printable(text[:shown_max]), "decoded", len(data or b""), len(text) > shown_max)


def _problem(partition: int, offset: int, size: int, text: str) -> ShownRecord:
    nothing = ShownBytes(None, "text", 0, False)
    value = ShownBytes("", "text", size, False)
    return ShownRecord(partition, offset, -1, nothing, value, [], f"a batch cannot be read: {text}")


def bytes_as_text(data: bytes | None, form: str, shown_max: int) -> ShownBytes:
    """Bytes in a form: `auto` takes JSON, else text, else hex, whichever fits."""
    if data is None:
        return ShownBytes(None, "text", 0, False)
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
        try:
            pretty = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
            return ShownBytes(printable(pretty[:shown_max]), "json", len(data), len(pretty) > shown_max)
        except (ValueError, RecursionError):
            pass
    if form == "auto" and not all(each.isprintable() or each in "\t\r\n" for each in text):
        return _hex(data, shown_max)
    is_cut = len(text) > shown_max or len(part) < len(data)
    return ShownBytes(printable(text[:shown_max]), "text", len(data), is_cut)


def _hex(data: bytes, shown_max: int) -> ShownBytes:
    return ShownBytes(data[: shown_max // 3].hex(" "), "hex", len(data), len(data) > shown_max // 3)
