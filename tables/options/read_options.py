"""The options of Spark's data source: those of Spark's Kafka connector, and further ones for reading files.

An option of the connector without a meaning for files is ignored with a warning; one that would change the result is
refused. An unknown option is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.tiered.object_options import FILE_SCHEME, SCHEMES
from moldau.tables.options.offset_choices import (
    ENDING,
    STARTING,
    STREAM_STARTING,
    OffsetChoice,
    offset_choice,
    refuse_reversed,
)
from moldau.tables.options.option_values import (
    StoreAddress,
    TriggerLimits,
    boolean,
    checked_word,
    client_settings,
    is_client_setting,
    is_natural,
    is_second_word,
    names_in,
    parsed_json,
    positive,
    trigger_limits,
)
from moldau.tables.refusals import Refused, did_you_mean, warn

Use: TypeAlias = Literal["batch", "stream", "either"]
"""The kind of query for which options are parsed. `either` is for Spark's request for the columns, before it says
whether the query is a batch or a stream."""
_KNOWN: Final = (
    "path",
    "paths",
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "includeHeaders",
    "columns",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "kafka.isolation.level",
    "snapshot",
    "table",
    "asOf",
    "tombstones",
    "moldau.tiered.storage.endpoint",
    "moldau.tiered.storage.region",
    "moldau.tiered.storage.timeout.ms",
    "kafka.bootstrap.servers",
)
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_NOT_OF_STREAMS: Final = (
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "snapshot",
    "asOf",
)
_WHY_NOT: Final = {
    "kafka.auto.offset.reset": "startingOffsets says where a read begins",
    "kafka.enable.auto.commit": "a read commits no offsets",
    "kafka.interceptor.classes": "an interceptor may change records",
    "kafka.key.deserializer": "keys are binary; DataFrame operations decode them",
    "kafka.value.deserializer": "values are binary; DataFrame operations decode them",
    "pushdown": "PySpark keeps the predicates of one query for the next ones; assign, startingOffsets and the other "
    "bounds choose what is read",
}
_WITHOUT_EFFECT: Final = (
    "groupidprefix",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
)
"""Options of the connector that configure its consumer. They have no effect, because no consumer is used here."""
_SELECTIONS: Final = ("subscribe", "assign", "subscribePattern")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
TABLES: Final = ("records", "batches", "latest", "offsets", "groups", "transactions", "topics", "segments")
_OF_FILES: Final = ("batches", "topics", "segments")
_WITHOUT_SELECTION: Final = {
    "offsets": "__consumer_offsets",
    "groups": "__consumer_offsets",
    "transactions": "__transaction_state",
}
"""The internal topic of each table that reads only this topic, and so takes no selection of topics."""


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The choice of the partitions to read. At most one of the first four fields is given."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None
    is_everything: bool = False
    """Whether all topics are read, including internal ones."""
    is_optional: bool = False
    """Whether a topic that does not exist is left out. If False, the read is refused."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read: which records, by how many tasks. A part that is not given has the default of the data
    source."""

    directories: tuple[str, ...] = ()
    """Log directories of brokers, and directories that are tiered storages."""
    subscription: TopicSelection = TopicSelection()
    starting: OffsetChoice = "earliest"
    ending: OffsetChoice = "latest"
    unmatched_start_is_latest: bool = False
    """Whether a partition is read from its end if no record is at or after a starting time. If False, the read is
    refused."""
    include_headers: bool = False
    columns: tuple[str, ...] = ()
    """The columns to read; empty means all."""
    tasks_min: int | None = None
    records_per_task_max: int | None = None
    fails_on_data_loss: bool = True
    is_committed: bool = False
    """Whether only committed records are read, as by a consumer with isolation.level=read_committed."""
    snapshot: str | None = None
    """A snapshot as JSON, or the path of a file with a snapshot."""
    table: str = "records"
    keeps_tombstones: bool = False
    brokers: tuple[str, ...] = ()
    """The bootstrap addresses (host:port); empty if no broker is used."""
    limits: TriggerLimits = field(default_factory=TriggerLimits)
    client: tuple[tuple[str, str], ...] = ()
    """The settings of the client of these brokers, as (name, value)."""
    stores: tuple[StoreAddress, ...] = ()
    """The addresses of tiered storages in object stores."""


NOTHING_GIVEN: Final = ReadOptions()


def parse_options(options: Mapping[str, str], use: Use = "batch", base: ReadOptions = NOTHING_GIVEN) -> ReadOptions:
    """Parse the options of a read. `base` has the values of the options that are not given; the start and the end are
    not taken from it, and their defaults depend on `use`. Upper and lower case in the names do not matter. Raises
    `Refused`."""
    given = {name.lower(): value for name, value in options.items()}
    brokers = names_in(given.get("kafka.bootstrap.servers", "")) or base.brokers
    _refuse_unknown(given, use, has_brokers=bool(brokers))
    if use == "stream":
        _refuse_in_streams(given)
    table = checked_word("table", given.get("table", base.table), TABLES)
    if "asof" in given:
        given |= _as_of(table, given)
    isolation, strategy = "kafka.isolation.level", "startingOffsetsByTimestampStrategy"
    is_committed = is_second_word(isolation, given.get(isolation), ISOLATIONS, base.is_committed)
    starting = offset_choice(STARTING if use == "batch" else STREAM_STARTING, given)
    ending = offset_choice(ENDING, given)
    refuse_reversed(starting, ending)
    directories, stores = _places(table, given, base, has_brokers=bool(brokers))
    return ReadOptions(
        directories=directories,
        stores=stores,
        brokers=brokers,
        limits=trigger_limits(given) if use == "stream" else TriggerLimits(),
        client=client_settings(given) or base.client,
        subscription=_subscription(table, given, base.subscription),
        starting=starting,
        ending=ending,
        unmatched_start_is_latest=is_second_word(strategy, given.get(strategy.lower()), ("error", "latest"), False),
        include_headers=boolean("includeHeaders", given.get("includeheaders"), base.include_headers),
        columns=_columns(given["columns"]) if "columns" in given else base.columns,
        tasks_min=positive("minPartitions", given.get("minpartitions")) or base.tasks_min,
        records_per_task_max=positive("maxRecordsPerPartition", given.get("maxrecordsperpartition"))
        or base.records_per_task_max,
        fails_on_data_loss=boolean("failOnDataLoss", given.get("failondataloss"), base.fails_on_data_loss),
        is_committed=is_committed or table in _WITHOUT_SELECTION,
        snapshot=given.get("snapshot", base.snapshot),
        table=table,
        keeps_tombstones=is_second_word("tombstones", given.get("tombstones"), ("drop", "keep"), base.keeps_tombstones),
    )


def _refuse_unknown(given: Mapping[str, str], use: Use, *, has_brokers: bool) -> None:
    known = {name.lower() for name in _KNOWN}
    of_streams = {name.lower() for name in _OF_STREAMS}
    for name in sorted(given.keys() - known):
        if name in _WHY_NOT:
            raise Refused(f"the option {name} is not supported: {_WHY_NOT[name]}")
        if name in of_streams or is_client_setting(name):
            if use == "batch" and (name in of_streams or not has_brokers):
                warn(f"the option {name} has no effect on a batch query over files")
            continue
        if name in _WITHOUT_EFFECT or name.startswith("kafka."):
            if use != "either":
                warn(f"the option {name} has no effect: it is one of a consumer, and the source has none")
            continue
        raise Refused(f"the option {name} is not supported{did_you_mean(name, _KNOWN)}: known are {', '.join(_KNOWN)}")


def _refuse_in_streams(given: Mapping[str, str]) -> None:
    for name in _NOT_OF_STREAMS:
        if name.lower() in given:
            raise Refused(f"{name} is not possible in a streaming query")
    if given.get("table", "records").strip().lower() != "records":
        raise Refused(f"table={given['table']} is not possible in a streaming query: it reads records")


def _as_of(table: str, given: Mapping[str, str]) -> dict[str, str]:
    """Parse `asOf`, which is offsets as JSON or a time in ms, and return it as the option for the end of a read."""
    if table != "latest":
        raise Refused(f"asOf is an option of table=latest, not of table={table}")
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in given:
            raise Refused(f"asOf and {name} are two names of one thing")
    value = given["asof"].strip()
    return {"endingoffsets" if value.startswith("{") else "endingtimestamp": value}


def _columns(value: str) -> tuple[str, ...]:
    columns = names_in(value)
    if not columns:
        raise Refused("columns names no column")
    return columns


def _places(
    table: str, given: Mapping[str, str], base: ReadOptions, *, has_brokers: bool
) -> tuple[tuple[str, ...], tuple[StoreAddress, ...]]:
    """The directories and the tiered storages in object stores that a read uses. Both may be missing if brokers are
    given and the table reads records. Raises `Refused`."""
    is_named = "path" in given or "paths" in given
    directories, stores = directories_and_stores(_named_places(given)) if is_named else (base.directories, base.stores)
    if not directories and not stores:
        if is_named or not has_brokers:
            raise Refused(
                "path is not given: the log directories of one or several brokers, and URLs of tiered storage, "
                "separated by commas"
            )
        if table in _OF_FILES:
            raise Refused(f"table={table} describes files, and `path` is not given")
    setting = "moldau.tiered.storage."
    timeout_ms = positive(f"{setting}timeout.ms", given.get(f"{setting}timeout.ms"))
    return directories, tuple(
        StoreAddress(
            each.url,
            given.get(f"{setting}endpoint", each.endpoint),
            given.get(f"{setting}region", each.region),
            timeout_ms or each.timeout_ms,
        )
        for each in stores
    )


def _named_places(given: Mapping[str, str]) -> Iterable[str]:
    """The names in `path`, separated by commas, or in `paths`, the JSON list that `load([...])` passes."""
    if "paths" not in given:
        return given["path"].split(",")
    names = parsed_json("paths", given["paths"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused(f"paths: {given['paths']} is not a list of names")
    return names


def directories_and_stores(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[StoreAddress, ...]]:
    """Sort names of places into absolute paths and object stores, without repetitions and empty names. Raises
    `Refused`."""
    places = dict.fromkeys(_local(name.strip()) for name in names if name.strip())
    directories = tuple(each for each in places if "://" not in each)
    return directories, tuple(StoreAddress(each) for each in places if "://" in each)


def _local(name: str) -> str:
    """Return the absolute path for a name, or the name itself if it is a URL. Raises `Refused`."""
    path = name.removeprefix(FILE_SCHEME)
    scheme, separator, _ = path.partition("://")
    if separator:
        if scheme not in SCHEMES:
            raise Refused(f"path: {name} is neither a directory nor a URL of {', '.join(SCHEMES)}")
        return path.rstrip("/")
    return os.path.abspath(path)  # tasks may run in another directory


def _subscription(table: str, given: Mapping[str, str], base: TopicSelection) -> TopicSelection:
    named = [name for name in _SELECTIONS if name.lower() in given]
    if base != TopicSelection():
        named.insert(0, "topic")
    if table in _WITHOUT_SELECTION:
        if named:
            raise Refused(f"{named[0]}: table={table} reads {_WITHOUT_SELECTION[table]} and nothing else")
        return TopicSelection(topics=(_WITHOUT_SELECTION[table],), is_optional=True)
    if not named and table in ("topics", "segments"):
        return TopicSelection(is_everything=True)
    if len(named) != 1:
        given_text = " and ".join(named) or "none, so that no topic is named"
        raise Refused(f"exactly one of {', '.join(_SELECTIONS)} must be given, not {given_text}")
    return base if named == ["topic"] else _selection(named[0], given[named[0].lower()])


def _selection(name: str, value: str) -> TopicSelection:
    """Parse one of the three options that select topics. Raises `Refused`."""
    if name == "assign":
        return TopicSelection(partitions=_assigned(value))
    if name == "subscribe":
        return TopicSelection(topics=topics_in(name, value))
    pattern = value.strip()
    try:
        re.compile(pattern)
    except re.error as problem:
        raise Refused(f"subscribePattern: {value!r} is not a regular expression: {problem}") from None
    if not pattern:
        raise Refused("subscribePattern is empty")
    return TopicSelection(pattern=pattern)


def topics_in(name: str, value: str) -> tuple[str, ...]:
    """The topics in a list separated by commas, the value of the option `name`. Raises `Refused` if there is none."""
    topics = names_in(value)
    if not topics:
        raise Refused(f"{name} names no topic")
    return topics


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    parsed = parsed_json("assign", value)
    shape = f'assign: {value} is not of the shape {{"topic": [0, 1]}}'
    if not isinstance(parsed, dict) or not parsed:
        raise Refused(shape)
    keys: dict[TopicPartition, None] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not partitions or not all(map(is_natural, partitions)):
            raise Refused(shape)
        keys.update(dict.fromkeys((topic, partition) for partition in partitions))
    return tuple(keys)
