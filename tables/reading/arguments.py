"""Parsing the arguments of a read in Python (places, topics, start and end) into the options of the data source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.options.offset_choices import EARLIEST, LATEST, OffsetChoice, Timestamps, refuse_reversed
from moldau.tables.options.option_values import checked_word
from moldau.tables.options.read_options import (
    ISOLATIONS,
    TABLES,
    ReadOptions,
    TopicSelection,
    directories_and_stores,
    parse_options,
    topics_in,
)
from moldau.tables.planning.planner import Planner, selected_partitions
from moldau.tables.refusals import Refused

Place: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""The places of a read: log directories, roots of tiered storages (paths and URLs) and bootstrap addresses (host:port).
One or several; in a text they are separated by commas."""
Topic: TypeAlias = "str | Sequence[str] | None"
Bound: TypeAlias = "int | datetime | Mapping[int, int] | Literal['earliest', 'latest'] | None"
"""The start or the end of a read:

| given             | as the start                             | as the end (exclusive)                           |
|-------------------|------------------------------------------|--------------------------------------------------|
| None              | the first record                         | the high watermark, or the last stable offset    |
| an int            | the records of each partition from it on | the records of each partition before it          |
| partition: offset | this offset, which has to exist; other partitions as with None | the same                   |
| a datetime        | the first record at or after this time   | the same                                         |
"""
Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
BOOTSTRAP: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def source_options(
    place: Place,
    topic: Topic,
    *,
    table: str,
    isolation: str,
    snapshot: str | None,
    further: Mapping[str, str] | None,
) -> ReadOptions:
    """Make the options of a read, without start and end. `further`: options of the data source (docs/spark.md), by
    name. Raises `Refused`."""
    topics = topics_in("topic", topic) if isinstance(topic, str) else tuple(dict.fromkeys(topic or ()))
    base = replace(
        options_of_places(place),
        subscription=TopicSelection(topics=topics),
        is_committed=checked_word("isolation", isolation, ISOLATIONS) == "read_committed",
        snapshot=snapshot,
        table=checked_word("table", table, TABLES),
    )
    return parse_options(further or {}, base=base)


def options_of_places(place: Place) -> ReadOptions:
    """Make options that name only the places of a read. A name of the form host:port that is not a directory is the
    address of a broker. Raises `Refused`."""
    given: Iterable[str | os.PathLike[str]] = [place] if isinstance(place, os.PathLike) else place
    if isinstance(place, str):
        given = place.split(",")
    paths: list[str] = []
    brokers: list[str] = []
    for name in (os.fspath(each).strip() for each in given):
        is_address = BOOTSTRAP.fullmatch(name) is not None and not os.path.isdir(name)
        (brokers if is_address else paths).append(name)
    directories, stores = directories_and_stores(paths)
    return ReadOptions(directories, brokers=tuple(dict.fromkeys(brokers)), stores=stores)


def with_bounds(options: ReadOptions, start: Bound, end: Bound) -> ReadOptions:
    """Return the options with a start and an end. A bound that is an int is left out, because `offset_bounds` handles
    it. Raises `Refused` and OSError."""
    keys: list[TopicPartition] = []
    if isinstance(start, Mapping) or isinstance(end, Mapping):
        planner = Planner(LocalFiles(), options)
        keys = selected_partitions(
            {key for origin in planner.origins for key in origin.partitions()}, options.subscription
        )
    starting = _choice("start", start, keys, EARLIEST)
    ending = _choice("end", end, keys, LATEST)
    if starting == "latest":
        raise Refused("start: latest reads nothing")
    if ending == "earliest":
        raise Refused("end: earliest reads nothing")
    chosen = replace(
        options,
        starting=starting or options.starting,
        ending=ending or options.ending,
        unmatched_start_is_latest=options.unmatched_start_is_latest or isinstance(start, datetime),
    )
    refuse_reversed(chosen.starting, chosen.ending)
    return chosen


def named_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns as a tuple. Raises `Refused` for a text, which would be taken for a
    list of letters."""
    if isinstance(columns, str):
        raise Refused(f'columns is the text {columns!r}: a list is needed, such as ["{columns}"]')
    return tuple(columns)


def _choice(name: str, bound: Bound, keys: Sequence[TopicPartition], otherwise: int) -> OffsetChoice | None:
    """Parse the start or the end of a read; None if it is not given, or is an int. `otherwise`: the offset for
    partitions that a mapping does not name."""
    if bound is None or (isinstance(bound, int) and not isinstance(bound, bool)):
        return None
    if isinstance(bound, datetime):
        return Timestamps(milliseconds_of(name, bound))
    if isinstance(bound, Mapping):
        unknown = sorted(bound.keys() - {partition for _, partition in keys})
        if unknown:
            raise Refused(f"{name}: there is no partition {unknown[0]}")
        return {key: bound.get(key[1], otherwise) for key in keys}
    if bound in ("earliest", "latest"):
        return bound
    raise Refused(f"{name}: {bound!r} is not an offset, a time with a time zone, or offsets by partition")


def milliseconds_of(name: str, time: datetime) -> int:
    """Convert a time into milliseconds since the epoch, rounded up, so that the first record at or after the time is
    found. Raises `Refused` if the time has no time zone."""
    if time.tzinfo is None:
        raise Refused(f"{name}: {time} has no time zone")
    return -((EPOCH - time) // timedelta(milliseconds=1))


def offset_bounds(start: Bound, end: Bound) -> tuple[int | None, int | None]:
    """Return the start and the end as offsets that hold for every partition. A bound that is not an int gives None.
    Raises `Refused`."""
    found = [bound if isinstance(bound, int) and not isinstance(bound, bool) else None for bound in (start, end)]
    for name, offset in zip(("start", "end"), found, strict=True):
        if offset is not None and offset < 0:
            raise Refused(f"{name}: offset {offset} is below 0")
    if None not in found and found[0] > found[1]:  # type: ignore[operator]
        raise Refused(f"start {found[0]} is past end {found[1]}")
    return found[0], found[1]
