"""The page of a topic's records: by offset, by time, by key, the newest first; and their live tail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from moldau.broker.config.internal_topics import CONTENTS_OF_TOPICS, Contents
from moldau.broker.config.values import linear_match
from moldau.broker.console.lag import fetch
from moldau.broker.console.masking import Masks
from moldau.broker.console.page import Page, Refusal, Visit, as_json, decimal, gather
from moldau.broker.console.partitions import EARLIEST, LATEST, Partition, offsets_of
from moldau.broker.console.record_reading import (
    FORMS,
    Budget,
    Found,
    ShownRecord,
    Wanted,
    read_back,
    read_forward,
    select,
)
from moldau.broker.console.topic_pages import INTERNAL, visible_topic
from moldau.kraft.image.topics import Topic
from moldau.security.access import AclOperation, ResourceKind

LIMIT: Final = 50
LIMIT_MAX: Final = 500
PARTITIONS_MAX: Final = 64
"""The most partitions that one page reads."""
PAGE_BYTES: Final = 1 << 25
PAGE_MS: Final = 2_000
"""The most bytes that one page reads, and the time (ms) after which it reads no further."""
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
    environment = visit.ports.environment
    budget = Budget(PAGE_BYTES, environment.monotonic_ms() + PAGE_MS)
    errors = [f"the leader of {name}-{key[1]} does not answer" for key in keys if key not in ends]

    async def read(key: Partition) -> Found:
        first, end = starts[key], ends[key]
        if begin == NEWEST:
            return await read_back(visit.client, key, first, min(before or end, end), limit, wanted, budget)
        if begin == OFFSET:
            first = max(first, at)
        elif begin == TIME:
            offset = froms.get(key, -1)
            first = end if offset < 0 else offset
        return await read_forward(visit.client, key, first, end, limit, wanted, budget)

    known = [key for key in keys if key in ends and key in starts]
    found = await gather(*(read(key) for key in known))
    errors += [f"{key[0]}-{key[1]}: {each.error}" for key, each in zip(known, found, strict=True) if each.error]
    records = [record for each in found for record in each.records]
    if begin == NEWEST:
        records.sort(key=lambda each: (-each.timestamp, each.partition, -each.offset))
    else:
        records.sort(key=lambda each: (each.timestamp, each.partition, each.offset))
    is_complete = all(each.is_end or len(each.records) >= limit for each in found)
    further = None
    if len(found) == 1 and not found[0].is_end:
        offset = found[0].next_offset
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
        records[:limit],
        further,
        is_complete,
        errors,
        tail,
        name.startswith(INTERNAL),
    )


async def wanted_of(visit: Visit, topic: str) -> Wanted:
    """What the query asks for. Raises `Refusal`."""
    pattern = visit.field("find")
    find = None
    if pattern:
        # RE2 may take long to compile an expression that fits into its memory.
        find = await visit.ports.environment.offload(partial(linear_match, f"(?s).*(?:{pattern}).*"))
        if find is None:
            raise Refusal(400, f"{pattern[:200]!r} is not an expression of RE2")
    key = visit.query.get("key") or None
    contents = CONTENTS_OF_TOPICS.get(topic, Contents.PLAIN)
    form = visit.choice("form", FORMS)
    is_decoded = contents is Contents.PLAIN and form != "hex"
    return Wanted(
        visit.choice("isolation", ISOLATIONS) == ISOLATIONS[0],
        None if key is None else key.encode("utf-8", "surrogateescape"),
        find,
        visit.choice("place", PLACES),
        form,
        contents,
        visit.choice("whole", ("no", "yes")) == "yes",
        Masks(visit.ports.config.entries("moldau.console.masks"), topic),
        visit.kept.schemas if is_decoded else None,
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
        pieces = await gather(*(_piece(visit, key, offset, wanted) for key, offset in offsets.items()))
        records: list[ShownRecord] = []
        left_out = 0
        for key, (shown, next_offset, size, skipped) in zip(offsets, pieces, strict=True):
            records += shown
            left_out += skipped
            left -= size
            offsets[key] = next_offset
        records.sort(key=lambda each: (each.timestamp, each.partition, each.offset))
        left_out += max(len(records) - TAIL_ROWS, 0)
        if not records and not left_out:
            yield b": nothing new\n\n"
            continue
        event = {"records": records[-TAIL_ROWS:], "left_out": left_out}
        at = ",".join(f"{index}:{offset}" for (_, index), offset in offsets.items())
        yield f"id: {at}\ndata: {json.dumps(event, default=as_json)}\n\n".encode()
        await asyncio.sleep(TAIL_WAIT_MS / 1000)


async def _piece(visit: Visit, key: Partition, offset: int, wanted: Wanted) -> tuple[list[ShownRecord], int, int, int]:
    """The matching records from an offset on, the next offset, the bytes that were read, and the offsets that were
    skipped, because the tail is behind by more than it shows.
    """
    isolation = int(wanted.is_committed)
    fetched = await fetch(visit.client, key, offset, TAIL_PIECE, isolation, wait_ms=TAIL_WAIT_MS)
    if fetched is None or fetched.error:
        await asyncio.sleep(TAIL_WAIT_MS / 1000)
        return [], offset, 0, 0
    end = fetched.last_stable_offset if wanted.is_committed else fetched.high_watermark
    skipped = 0
    if wanted.find is None and wanted.key is None and end - offset > 10 * TAIL_ROWS:
        skipped = end - TAIL_ROWS - offset
        offset += skipped
        fetched = await fetch(visit.client, key, offset, TAIL_PIECE, isolation)
        if fetched is None or fetched.error:
            return [], offset, 0, skipped
    work = partial(select, key[1], fetched, offset, max(end, offset), TAIL_ROWS * 100, wanted)
    shown, next_offset = await visit.ports.environment.offload(work)
    return shown, max(next_offset, offset), len(fetched.records), skipped


PAGES: Final = (Page("/topics/{name}/records", "records.html", describe_records),)
