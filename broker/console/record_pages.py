"""The page of a topic's records (by offset, by time, by key, or the newest first), their search, and their live
tail.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.broker.config.internal_topics import CONTENTS_OF_TOPICS, RecordKind
from moldau.broker.console.decoding.prefilter import ANYWHERE
from moldau.broker.console.decoding.selection import RecordFilter, ShownRecord
from moldau.broker.console.decoding.texts import FORMS
from moldau.broker.console.lag import fetch
from moldau.broker.console.page import Page, PageRequest, Refusal, as_json, decimal, gather_results
from moldau.broker.console.partitions import EARLIEST, LATEST, Partition, offsets_of
from moldau.broker.console.record_reading import ReadBudget, ReadRecords, RecordReader, not_decoded, piece_of
from moldau.broker.console.topic_pages import INTERNAL, visible_topic
from moldau.broker.runtime.limited_work import WorkProcessEnded
from moldau.kraft.image.topics import Topic
from moldau.protocol.errors import ErrorCode
from moldau.security.access import AclOperation, ResourceKind
from moldau.tables.values.masks import Masks, mask_rule

LIMIT: Final = 50
LIMIT_MAX: Final = 500
PARTITIONS_MAX: Final = 64
"""The most partitions that one page reads."""
PAGE_BYTES: Final = 1 << 25
PAGE_EXPANDED: Final = 1 << 27
PAGE_MS: Final = 2_000
"""The limits of one page: the stored bytes that it reads, the decoded bytes, and the time (ms) after which it reads no
further.
"""
PAGE_CHARACTERS: Final = 1 << 19
"""The number of characters of keys, values and headers after which a page shows no further record."""
NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"
PLACES: Final = ("any", "key", "value", "headers")
OFFSET_MAX: Final = (1 << 63) - 1
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
TAIL_MS: Final = 600_000
TAIL_BYTES: Final = 1 << 26
"""The time (ms) and the bytes of records after which a live tail ends. The browser then resumes it."""
TAIL_WAIT_MS: Final = 500
TAIL_ROWS: Final = 100
"""The most records in one event of the live tail. If there are more, the oldest of them are left out, and the event has
their number.
"""
TAIL_PIECE: Final = 1 << 17
TAIL_CHARACTERS: Final = 1 << 18
"""The bytes of one Fetch of the live tail (`TAIL_PIECE`), and the number of characters after which an event has no
further record.
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordList:
    topic: str
    partition: int | None
    """The partition; None for all partitions."""
    partitions: int
    begin: str
    """The way to begin: newest, oldest, offset or time."""
    at: str
    since: str
    until: str
    key: str | None
    header: str
    field: str
    find: str
    place: str
    isolation: str
    form: str
    limit: int
    records: list[ShownRecord]
    further: str | None
    """The address of the next records, or of older ones if the newest come first. None if there are none, or if several
    partitions are shown.
    """
    is_complete: bool
    """Whether all records in question were read. If not, the page stopped at one of its limits."""
    errors: list[str]
    tail: str
    """The address of the live tail."""
    search: str
    """The address of the search, which also reads the records that did not fit on the page."""
    is_internal: bool


async def describe_records(visit: PageRequest) -> RecordList:
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    wanted = await wanted_of(visit, name)
    begin = visit.choice("begin", (NEWEST, OLDEST, OFFSET, TIME))
    limit = visit.whole_number("limit", LIMIT, 1, LIMIT_MAX)
    keys = partitions_of(visit, topic)
    starts, ends = await ranges_of(visit, keys, wanted)
    at = visit.whole_number("at", 0)
    before = visit.whole_number("before", 0)
    froms = await offsets_of(visit.client, keys, at) if begin == TIME else {}
    budget = ReadBudget(PAGE_BYTES, PAGE_EXPANDED, visit.ports.environment.monotonic_ms() + PAGE_MS)
    reader = RecordReader(visit.client, wanted, budget)
    errors = _unread(topic, keys) + _away(keys, ends)

    async def read(key: Partition) -> ReadRecords:
        first, end = starts[key], ends[key]
        if begin == NEWEST:
            return await reader.read_backward(key, first, min(before or end, end), limit, PAGE_CHARACTERS)
        if begin == OFFSET:
            first = max(first, at)
        elif begin == TIME:
            offset = froms.get(key, -1)
            first = end if offset < 0 else max(first, offset)
        return await reader.read_forward(key, first, end, limit, PAGE_CHARACTERS)

    known = [key for key in keys if key in ends and key in starts]
    records: list[ShownRecord] = []
    is_complete = True
    for key in known:  # One after another: so no more than two pages of records are held.
        found = await read(key)
        if found.error:
            errors.append(f"{key[0]}-{key[1]}: {found.error}")
        records += found.records
        is_complete &= found.is_end or len(found.records) >= limit
        records, is_whole = page_records(records, limit, is_newest=begin == NEWEST)
        is_complete &= is_whole
    further = None
    if len(known) == 1 and not found.is_end:
        offset = found.next_offset
        further = visit.link(before=offset) if begin == NEWEST else visit.link(begin=OFFSET, at=offset)
    tail = subpage_visit(visit, "tail").link(begin=None, at=None, before=None, limit=None, since=None, until=None)
    search = subpage_visit(visit, "search").link(
        begin=begin if begin == OLDEST else None, at=None, before=None, whole=None
    )
    return RecordList(
        name,
        keys[0][1] if visit.field("partition") else None,
        len(topic.partitions),
        begin,
        visit.field("at"),
        visit.field("since"),
        visit.field("until"),
        visit.exact("key") or None,
        visit.field("header"),
        visit.field("field"),
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
        search,
        name.startswith(INTERNAL),
    )


def page_records(records: list[ShownRecord], limit: int, *, is_newest: bool) -> tuple[list[ShownRecord], bool]:
    """Sort the records of a page, and cut the list to `limit` records and `PAGE_CHARACTERS` characters. The second
    value is False if the list was cut because of the characters.
    """
    sign = -1 if is_newest else 1
    records.sort(key=lambda each: (sign * each.timestamp, each.partition, sign * each.offset))
    left = PAGE_CHARACTERS
    for place, each in enumerate(records[:limit]):
        if left <= 0:
            return records[:place], False
        left -= each.characters
    return records[:limit], True


async def wanted_of(visit: PageRequest, topic: str) -> RecordFilter:
    """The filters and formats in the query, for the records of a topic. Raises `Refusal`."""
    pattern = visit.field("find")
    find = pattern.join(ANYWHERE) if pattern else ""
    if find:
        try:
            # RE2 may take long to compile an expression that fits into its memory.
            is_expression = await visit.ports.decoder.compiles(find, visit.client.asker)
        except WorkProcessEnded as ended:
            raise Refusal(503, f"{pattern[:200]!r} was not compiled: {ended}") from None
        if not is_expression:
            raise Refusal(400, f"{pattern[:200]!r} is not an expression of RE2")
    key = visit.exact("key") or None
    contents = CONTENTS_OF_TOPICS.get(topic, RecordKind.PLAIN)
    return RecordFilter(
        visit.choice("isolation", ISOLATIONS) == ISOLATIONS[0],
        None if key is None else key.encode("utf-8", "surrogateescape"),
        find,
        visit.choice("place", PLACES),
        visit.choice("form", FORMS),
        contents,
        visit.choice("whole", ("no", "yes")) == "yes",
        Masks(map(mask_rule, visit.ports.config.entries("moldau.console.masks")), topic),
        header_of(visit),
        field_of(visit),
    )


def header_of(visit: PageRequest) -> tuple[str, bytes | None] | None:
    """The header that the query requires of records, as (name, value); a value of None means any value. None if the
    query requires no header.
    """
    name, has_value, value = visit.field("header").partition("=")
    return (name, value.encode("utf-8", "surrogateescape") if has_value else None) if name else None


def field_of(visit: PageRequest) -> tuple[str, str] | None:
    """The JSON field in the query that records must have: its path, and its value as text. None if the query names no
    field. Raises `Refusal`.
    """
    given = visit.field("field")
    path, is_pair, text = given.partition("=")
    if given and not (is_pair and path):
        raise Refusal(400, f"field is {given[:200]!r}, and must be FIELD=VALUE, such as customer.id=7")
    return (path, text) if given else None


def subpage_visit(visit: PageRequest, name: str) -> PageRequest:
    """The request for a page below this one: its path has the further step `name`, and its query is the same."""
    return PageRequest(visit.client, f"{visit.path}/{name}", visit.variables, visit.query)


async def ranges_of(
    visit: PageRequest, keys: list[Partition], wanted: RecordFilter
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """The range of offsets to show of each partition, as start and end (exclusive): from the first record at or after
    the query's `since` up to the first record at or after its `until`. Raises `Refusal`.
    """
    since, until = await times_of(visit, "since", keys), await times_of(visit, "until", keys)
    starts, ends = await gather_results(
        offsets_of(visit.client, keys, EARLIEST), offsets_of(visit.client, keys, LATEST, int(wanted.is_committed))
    )
    for key, end in ends.items():
        if key in starts:
            starts[key] = max(starts[key], min(since.get(key, 0), end))
            ends[key] = max(min(end, until.get(key, end)), starts[key])
    return starts, ends


async def times_of(visit: PageRequest, name: str, keys: list[Partition]) -> dict[Partition, int]:
    """The offset of each partition's first record at or after the time in the query parameter `name`; `OFFSET_MAX` if
    there is none. Empty if the query does not have the parameter. Raises `Refusal`.
    """
    text = visit.field(name)
    if not text:
        return {}
    found = await offsets_of(visit.client, keys, time_ms(name, text))
    return {key: offset if offset >= 0 else OFFSET_MAX for key, offset in found.items()}


def time_ms(name: str, text: str) -> int:
    """Parse a time, given as ms since 1970 or in ISO 8601, into ms since 1970. A time without a zone is in UTC. `name`
    is the parameter in the message. Raises `Refusal`.
    """
    given = decimal(text)
    if given is not None:
        return given
    try:
        from datetime import UTC, datetime  # 0.4 MB, for what most nodes are never asked.

        moment = datetime.fromisoformat(text)
        return max(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise Refusal(
            400, f"{name} is {text[:40]!r}, and must be a time such as 2026-11-29T06:00, or ms since 1970"
        ) from None


def partitions_of(visit: PageRequest, topic: Topic, most: int = PARTITIONS_MAX) -> list[Partition]:
    """The partition that the query names. If it names none, the first `most` partitions of the topic. Raises
    `Refusal`.
    """
    if visit.field("partition"):
        index = visit.whole_number("partition", 0)
        if index not in topic.partitions:
            raise Refusal(404, f"topic {topic.name} has no partition {index}")
        return [(topic.name, index)]
    return [(topic.name, index) for index in sorted(topic.partitions)[:most]]


def _unread(topic: Topic, keys: list[Partition]) -> list[str]:
    """A line for the user if the topic has too many partitions to read all of them."""
    is_cut = len(keys) == PARTITIONS_MAX < len(topic.partitions)
    return (
        [f"partitions 0 to {keys[-1][1]} of {len(topic.partitions)} are read: others by their number"] if is_cut else []
    )


def _away(keys: list[Partition], known: Container[Partition]) -> list[str]:
    """The lines for the user about the partitions that are not in `known`, because their leaders do not answer."""
    return [f"the leader of {topic}-{index} does not answer" for topic, index in keys if (topic, index) not in known]


# The search


async def search_records(visit: PageRequest, last_event_id: str = "") -> AsyncIterator[bytes]:
    """Begin a search of a topic's records. Returns server-sent events with the records found and the progress. If the
    browser resumes the search, it begins anew. Raises `Refusal`.
    """
    from moldau.broker.console.searching.search import Search

    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    wanted = await wanted_of(visit, name)
    limit = visit.whole_number("limit", LIMIT, 1, LIMIT_MAX)
    begin = visit.choice("begin", (NEWEST, OLDEST))
    keys = partitions_of(visit, topic, len(topic.partitions))
    starts, ends = await ranges_of(visit, keys, wanted)
    visit.refuse_unasked()
    ranges = {key: (starts[key], ends[key]) for key in keys if key in starts and key in ends}
    search = Search(visit.client, wanted, ranges, limit, begin == NEWEST, _away(keys, ranges))

    async def events() -> AsyncIterator[bytes]:
        async for seen in search.events():
            for begin in range(0, len(seen.records) or 1, TAIL_ROWS):
                part = seen._replace(records=seen.records[begin : begin + TAIL_ROWS])
                yield f"data: {json.dumps(part._asdict(), default=as_json)}\n\n".encode()
                await asyncio.sleep(0)

    return events()


# The live tail


async def tail_records(visit: PageRequest, last_event_id: str) -> AsyncIterator[bytes]:
    """Begin a live tail of a topic. Returns server-sent events with the records that are written from now on, or after
    those of the event `last_event_id`. The id of an event has the offsets from which a later request resumes. Raises
    `Refusal`.
    """
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    wanted, keys = await wanted_of(visit, name), partitions_of(visit, topic)
    ends = await offsets_of(visit.client, keys, LATEST, int(wanted.is_committed))
    resumed = {(name, index): offset for index, offset in _resumed(last_event_id).items() if (name, index) in keys}
    offsets = {key: min(resumed.get(key, OFFSET_MAX), ends.get(key, OFFSET_MAX)) for key in keys}
    offsets = {key: offset for key, offset in offsets.items() if offset < OFFSET_MAX}
    return _events(visit, keys, offsets, _unread(topic, keys), wanted)


def _resumed(last_event_id: str) -> dict[int, int]:
    """The offsets by partition in the id of an event. Malformed parts are ignored."""
    found = {}
    for each in last_event_id.split(","):
        index, _, offset = each.partition(":")
        numbers = decimal(index), decimal(offset)
        if numbers[0] is not None and numbers[1] is not None:
            found[numbers[0]] = numbers[1]
    return found


async def _events(
    visit: PageRequest, keys: list[Partition], offsets: dict[Partition, int], notes: list[str], wanted: RecordFilter
) -> AsyncIterator[bytes]:
    """The events of a live tail. It begins a partition at its offset in `offsets`, or if it has none, because the
    leader did not answer yet, at the end that the leader reports first. Each event has the lines `notes`.
    """
    environment = visit.ports.environment
    deadline_ms = environment.monotonic_ms() + TAIL_MS
    left = TAIL_BYTES
    told: list[str] = []
    yield b"retry: 1000\n\n"
    while environment.monotonic_ms() < deadline_ms and left > 0:
        await asyncio.sleep(TAIL_WAIT_MS / 1000)
        # One look at the ends of all partitions: those without new records are not asked for any.
        ends = await offsets_of(visit.client, keys, LATEST, int(wanted.is_committed))
        records: list[ShownRecord] = []
        left_out = 0
        away = notes + _away(keys, ends)
        errors = list(away)
        for key, end in ends.items():
            offset = offsets.setdefault(key, end)
            if end == offset:
                continue
            piece = await _piece(visit, key, offset, end, wanted)
            found = records + piece.records
            records = newest_records(found)
            offsets[key] = piece.next_offset
            left_out += piece.left_out + len(found) - len(records)
            left -= piece.size
            if piece.error:
                errors.append(f"{key[0]}-{key[1]}: {piece.error}")
        if not records and not left_out and errors == told:
            yield b": nothing new\n\n"
            continue
        told = away
        event = {"records": records, "left_out": left_out, "errors": errors}
        at = ",".join(f"{index}:{offset}" for (_, index), offset in offsets.items())
        yield f"id: {at}\ndata: {json.dumps(event, default=as_json)}\n\n".encode()


class _Tail(NamedTuple):
    """The new records of one partition in a live tail."""

    records: list[ShownRecord]
    next_offset: int
    size: int = 0
    """The number of bytes that were read."""
    left_out: int = 0
    """The number of records or offsets that are left out, because there are more new ones than an event shows."""
    error: str = ""


async def _piece(visit: PageRequest, key: Partition, offset: int, end: int, wanted: RecordFilter) -> _Tail:
    """Read one piece of a partition, and select the matching records in it. If the tail is far behind `end`, and
    no search filter is set, most of the offsets before `end` are skipped.
    """
    if end < offset:
        return _Tail([], end)  # The topic was made again, or another leader has less.
    skipped = 0
    if not wanted.is_search and end - offset > 10 * TAIL_ROWS:
        skipped = end - TAIL_ROWS - offset
        offset += skipped
    fetched = await fetch(visit.client, key, offset, TAIL_PIECE, int(wanted.is_committed))
    if fetched is not None and fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
        # Records were deleted before the tail resumed, or got to them.
        start = max((await offsets_of(visit.client, [key], EARLIEST)).get(key, offset), offset)
        return _Tail([], start, 0, skipped + start - offset)
    if fetched is None or fetched.error:
        return _Tail([], offset, 0, skipped)
    size = len(fetched.records)
    piece = piece_of(key, fetched, offset, end, TAIL_ROWS, TAIL_CHARACTERS, selects_newest=True)
    try:
        found = await visit.ports.decoder.select(piece, wanted, visit.client.asker)
    except WorkProcessEnded as ended:
        return _Tail([], end, size, skipped, not_decoded(offset, ended))
    return _Tail(found.records, max(found.next_offset, offset), size, skipped + found.left_out)


def newest_records(records: list[ShownRecord]) -> list[ShownRecord]:
    """The newest of the records, as many as one event may have. The oldest of them comes first."""
    records.sort(key=lambda each: (-each.timestamp, -each.partition, -each.offset))
    left = TAIL_CHARACTERS
    for place, each in enumerate(records[:TAIL_ROWS]):
        if left <= 0:
            return records[:place][::-1]
        left -= each.characters
    return records[:TAIL_ROWS][::-1]


PAGES: Final = (Page("/topics/{name}/records", "records.html", describe_records),)
