"""The page of a topic's records: by offset, by time, by key, the newest first; and their live tail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.broker.config.internal_topics import CONTENTS_OF_TOPICS, Contents
from moldau.broker.console.decoding.selection import ShownRecord, Wanted
from moldau.broker.console.decoding.texts import FORMS
from moldau.broker.console.lag import fetch
from moldau.broker.console.page import Page, Refusal, Visit, as_json, decimal, gather
from moldau.broker.console.partitions import EARLIEST, LATEST, Partition, offsets_of
from moldau.broker.console.record_reading import Budget, Found, Reader, not_decoded, piece_of
from moldau.broker.console.topic_pages import INTERNAL, visible_topic
from moldau.broker.runtime.limited_work import WorkEnded
from moldau.kraft.image.topics import Topic
from moldau.security.access import AclOperation, ResourceKind
from moldau.tables.values.masks import Masks, mask_rule

LIMIT: Final = 50
LIMIT_MAX: Final = 500
PARTITIONS_MAX: Final = 64
"""The most partitions that one page reads."""
PAGE_BYTES: Final = 1 << 25
PAGE_EXPANDED: Final = 1 << 27
PAGE_MS: Final = 2_000
"""The most bytes that one page reads, as they are stored and as they are decoded, and the time (ms) after which it
reads no further.
"""
PAGE_CHARACTERS: Final = 1 << 19
"""The characters of keys, values and headers after which a page shows no further record."""
NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"
PLACES: Final = ("any", "key", "value", "headers")
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
TAIL_MS: Final = 600_000
TAIL_BYTES: Final = 1 << 26
"""The time (ms) and the bytes of records after which a live tail ends; the browser then resumes it."""
TAIL_WAIT_MS: Final = 500
TAIL_ROWS: Final = 100
"""The most records of one event; the tail leaves out what is before them, and says how much."""
TAIL_PIECE: Final = 1 << 17
TAIL_CHARACTERS: Final = 1 << 18
"""The bytes of one Fetch, and the characters after which an event shows no further record."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordList:
    topic: str
    partition: int | None
    """None for all partitions."""
    partitions: int
    begin: str
    """newest, oldest, offset or time."""
    at: str
    key: str | None
    find: str
    place: str
    isolation: str
    form: str
    limit: int
    records: list[ShownRecord]
    further: str | None
    """The address of the records that follow, or of older ones."""
    is_complete: bool
    """Whether all that was asked for was read; otherwise the page stopped after its budget."""
    errors: list[str]
    tail: str
    """The address of the live tail."""
    is_internal: bool


async def describe_records(visit: Visit) -> RecordList:
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    wanted = await wanted_of(visit, name)
    begin = visit.choice("begin", (NEWEST, OLDEST, OFFSET, TIME))
    limit = visit.whole_number("limit", LIMIT, 1, LIMIT_MAX)
    keys = partitions_of(visit, topic)
    isolation = int(wanted.is_committed)
    ends, starts = await gather(
        offsets_of(visit.client, keys, LATEST, isolation), offsets_of(visit.client, keys, EARLIEST)
    )
    at = visit.whole_number("at", 0)
    before = visit.whole_number("before", 0)
    froms = await offsets_of(visit.client, keys, at) if begin == TIME else {}
    budget = Budget(PAGE_BYTES, PAGE_EXPANDED, visit.ports.environment.monotonic_ms() + PAGE_MS)
    reader = Reader(visit.client, wanted, budget)
    errors = [f"the leader of {name}-{key[1]} does not answer" for key in keys if key not in ends]

    async def read(key: Partition) -> Found:
        first, end = starts[key], ends[key]
        if begin == NEWEST:
            return await reader.back(key, first, min(before or end, end), limit, PAGE_CHARACTERS)
        if begin == OFFSET:
            first = max(first, at)
        elif begin == TIME:
            offset = froms.get(key, -1)
            first = end if offset < 0 else offset
        return await reader.forward(key, first, end, limit, PAGE_CHARACTERS)

    known = [key for key in keys if key in ends and key in starts]
    records: list[ShownRecord] = []
    is_complete = True
    for key in known:  # One after another: so no more than two pages of records are held.
        found = await read(key)
        if found.error:
            errors.append(f"{key[0]}-{key[1]}: {found.error}")
        records += found.records
        is_complete &= found.is_end or len(found.records) >= limit
        records, is_whole = shown(records, limit, is_newest=begin == NEWEST)
        is_complete &= is_whole
    further = None
    if len(known) == 1 and not found.is_end:
        offset = found.next_offset
        further = visit.link(before=offset) if begin == NEWEST else visit.link(begin=OFFSET, at=offset)
    tail = Visit(visit.client, f"{visit.path}/tail", visit.variables, visit.query).link(
        begin=None, at=None, before=None, limit=None
    )
    return RecordList(
        name,
        keys[0][1] if visit.field("partition") else None,
        len(topic.partitions),
        begin,
        visit.field("at"),
        visit.query.get("key"),
        visit.field("find"),
        visit.choice("place", PLACES),
        visit.choice("isolation", ISOLATIONS),
        wanted.form,
        limit,
        records,
        further,
        is_complete,
        errors,
        tail,
        name.startswith(INTERNAL),
    )


def shown(records: list[ShownRecord], limit: int, *, is_newest: bool) -> tuple[list[ShownRecord], bool]:
    """The records of a page in their order, and whether they were left out by their number alone, not by their size."""
    sign = -1 if is_newest else 1
    records.sort(key=lambda each: (sign * each.timestamp, each.partition, sign * each.offset))
    left = PAGE_CHARACTERS
    for place, each in enumerate(records[:limit]):
        if left <= 0:
            return records[:place], False
        left -= each.characters
    return records[:limit], True


async def wanted_of(visit: Visit, topic: str) -> Wanted:
    """What the query asks for. Raises `Refusal`."""
    pattern = visit.field("find")
    find = f"(?s).*(?:{pattern}).*" if pattern else ""
    if find:
        try:
            # RE2 may take long to compile an expression that fits into its memory.
            is_expression = await visit.ports.decoder.compiles(find, visit.client.asker)
        except WorkEnded as ended:
            raise Refusal(503, f"{pattern[:200]!r} was not compiled: {ended}") from None
        if not is_expression:
            raise Refusal(400, f"{pattern[:200]!r} is not an expression of RE2")
    key = visit.query.get("key") or None
    contents = CONTENTS_OF_TOPICS.get(topic, Contents.PLAIN)
    return Wanted(
        visit.choice("isolation", ISOLATIONS) == ISOLATIONS[0],
        None if key is None else key.encode("utf-8", "surrogateescape"),
        find,
        visit.choice("place", PLACES),
        visit.choice("form", FORMS),
        contents,
        visit.choice("whole", ("no", "yes")) == "yes",
        Masks(map(mask_rule, visit.ports.config.entries("moldau.console.masks")), topic),
    )


def partitions_of(visit: Visit, topic: Topic) -> list[Partition]:
    """The partitions that the query names: one, or all of a topic that has few. Raises `Refusal`."""
    if visit.field("partition"):
        index = visit.whole_number("partition", 0)
        if index not in topic.partitions:
            raise Refusal(404, f"topic {topic.name} has no partition {index}")
        return [(topic.name, index)]
    return [(topic.name, index) for index in sorted(topic.partitions)[:PARTITIONS_MAX]]


# The live tail


async def tail_records(visit: Visit, last_event_id: str) -> AsyncIterator[bytes]:
    """Server-sent events with the records that are written from now on, or from those after `last_event_id`. Each event
    has as its id the offsets at which a later request resumes. Raises `Refusal`.
    """
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    wanted, keys = await wanted_of(visit, name), partitions_of(visit, topic)
    isolation = int(wanted.is_committed)
    offsets = await offsets_of(visit.client, keys, LATEST, isolation)
    for index, offset in _resumed(last_event_id).items():
        if (name, index) in offsets:
            offsets[name, index] = min(offset, offsets[name, index])
    return _events(visit, offsets, wanted)


def _resumed(last_event_id: str) -> dict[int, int]:
    """The offsets by partition of an event's id; none of a text that is not one."""
    found = {}
    for each in last_event_id.split(","):
        index, _, offset = each.partition(":")
        numbers = decimal(index), decimal(offset)
        if numbers[0] is not None and numbers[1] is not None:
            found[numbers[0]] = numbers[1]
    return found


async def _events(visit: Visit, offsets: dict[Partition, int], wanted: Wanted) -> AsyncIterator[bytes]:
    environment = visit.ports.environment
    deadline_ms = environment.monotonic_ms() + TAIL_MS
    left = TAIL_BYTES
    yield b"retry: 1000\n\n"
    while environment.monotonic_ms() < deadline_ms and left > 0:
        await asyncio.sleep(TAIL_WAIT_MS / 1000)
        # One look at the ends of all partitions: those without new records are not asked for any.
        ends = await offsets_of(visit.client, offsets, LATEST, int(wanted.is_committed))
        records: list[ShownRecord] = []
        left_out = 0
        errors = []
        for key, end in ends.items():
            if end == offsets[key]:
                continue
            piece = await _piece(visit, key, offsets[key], end, wanted)
            records = newest(records + piece.records)
            offsets[key] = piece.next_offset
            left_out += piece.left_out
            left -= piece.size
            if piece.error:
                errors.append(f"{key[0]}-{key[1]}: {piece.error}")
        if not records and not left_out and not errors:
            yield b": nothing new\n\n"
            continue
        event = {"records": records, "left_out": left_out, "errors": errors}
        at = ",".join(f"{index}:{offset}" for (_, index), offset in offsets.items())
        yield f"id: {at}\ndata: {json.dumps(event, default=as_json)}\n\n".encode()


class _Tail(NamedTuple):
    """What is new of a partition."""

    records: list[ShownRecord]
    next_offset: int
    size: int = 0
    """The bytes that were read."""
    left_out: int = 0
    """Records, or offsets, that are not shown, because the tail is behind by more than it shows."""
    error: str = ""


async def _piece(visit: Visit, key: Partition, offset: int, end: int, wanted: Wanted) -> _Tail:
    """The matching records from an offset on."""
    if end < offset:
        return _Tail([], end)  # The topic was made again, or another leader has less.
    skipped = 0
    if not wanted.find and wanted.key is None and end - offset > 10 * TAIL_ROWS:
        skipped = end - TAIL_ROWS - offset
        offset += skipped
    fetched = await fetch(visit.client, key, offset, TAIL_PIECE, int(wanted.is_committed))
    if fetched is None or fetched.error:
        return _Tail([], offset, 0, skipped)
    size = len(fetched.records)
    piece = piece_of(key, fetched, offset, end, TAIL_ROWS, TAIL_CHARACTERS, newest=True)
    try:
        found = await visit.ports.decoder.select(piece, wanted, visit.client.asker)
    except WorkEnded as ended:
        return _Tail([], end, size, skipped, not_decoded(offset, ended))
    return _Tail(found.records, max(found.next_offset, offset), size, skipped + found.left_out)


def newest(records: list[ShownRecord]) -> list[ShownRecord]:
    """The newest records, as many as an event has."""
    records.sort(key=lambda each: (-each.timestamp, -each.partition, -each.offset))
    left = TAIL_CHARACTERS
    for place, each in enumerate(records[:TAIL_ROWS]):
        if left <= 0:
            return records[:place][::-1]
        left -= each.characters
    return records[:TAIL_ROWS][::-1]


PAGES: Final = (Page("/topics/{name}/records", "records.html", describe_records),)
