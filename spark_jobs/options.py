"""The options of the data source: those of Spark's Kafka connector that make sense for files. Others are refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from spark_jobs.partition_files import Refused
from storage.checkpoints.offset_checkpoint import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
"""The numbers that stand for earliest and latest in the connector's JSON."""

OffsetChoice: TypeAlias = Literal["earliest", "latest"] | Mapping[TopicPartition, int]

_KNOWN: Final = (
    "path",
    "paths",
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "kafka.isolation.level",
)
_WHY_NOT: Final = {
    "kafka.bootstrap.servers": "segments are read from `path` and no broker is asked",
    "startingtimestamp": "offsets by time are not part of this version; use startingOffsets",
    "endingtimestamp": "offsets by time are not part of this version; use endingOffsets",
    "startingoffsetsbytimestamp": "offsets by time are not part of this version; use startingOffsets",
    "endingoffsetsbytimestamp": "offsets by time are not part of this version; use endingOffsets",
}
_SELECTIONS: Final = ("subscribe", "assign", "subscribePattern")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The partitions to read; exactly one of the three fields is given."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options, parsed: what is read, and into how many tasks it is cut."""

    directories: tuple[str, ...]
    subscription: TopicSelection
    starting: OffsetChoice = "earliest"
    ending: OffsetChoice = "latest"
    include_headers: bool = False
    tasks_min: int | None = None
    records_per_task_max: int | None = None
    fails_on_data_loss: bool = True


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options; upper and lower case in their names do not matter. Raises `Refused`."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in _KNOWN}
    for name in given.keys() - known:
        reason = _WHY_NOT.get(name, f"known are {', '.join(_KNOWN)}")
        raise Refused(f"the option {name} is not supported: {reason}")
    isolation = given.get("kafka.isolation.level", "read_uncommitted")
    if isolation != "read_uncommitted":
        raise Refused(f"kafka.isolation.level={isolation} is not supported: only read_uncommitted is, as by default")
    return ReadOptions(
        directories=_directories(given),
        subscription=_subscription(given),
        starting=_offsets("startingOffsets", given.get("startingoffsets", "earliest"), refused="latest"),
        ending=_offsets("endingOffsets", given.get("endingoffsets", "latest"), refused="earliest"),
        include_headers=_boolean("includeHeaders", given.get("includeheaders", "false")),
        tasks_min=_count("minPartitions", given.get("minpartitions")),
        records_per_task_max=_count("maxRecordsPerPartition", given.get("maxrecordsperpartition")),
        fails_on_data_loss=_boolean("failOnDataLoss", given.get("failondataloss", "true")),
    )


def _directories(given: Mapping[str, str]) -> tuple[str, ...]:
    """The log directories: from `path`, separated by commas, or from the JSON that `load([...])` passes for a list."""
    if "paths" in given:
        names = _parsed_json("paths", given["paths"])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Refused(f"paths: {given['paths']} is not a list of names")
    else:
        names = given.get("path", "").split(",")
    directories = dict.fromkeys(_local(name.strip()) for name in names if name.strip())
    if not directories:
        raise Refused("path is not given: the log directories of the broker, separated by commas")
    return tuple(directories)


def _local(name: str) -> str:
    path = name.removeprefix("file://")
    if "://" in path:
        raise Refused(f"path: {name} is not on a local disk, and only local log directories can be read")
    return os.path.abspath(path)  # tasks may run in another directory


def _subscription(given: Mapping[str, str]) -> TopicSelection:
    named = [name for name in _SELECTIONS if name.lower() in given]
    if len(named) != 1:
        raise Refused(f"exactly one of {', '.join(_SELECTIONS)} must be given, not {' and '.join(named) or 'none'}")
    value = given[named[0].lower()]
    if named[0] == "assign":
        return TopicSelection(partitions=_assigned(value))
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise Refused("subscribe names no topic")
        return TopicSelection(topics=topics)
    try:
        re.compile(value)
    except re.error as problem:
        raise Refused(f"subscribePattern: {value!r} is not a regular expression: {problem}") from None
    return TopicSelection(pattern=value)


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    parsed = _parsed_json("assign", value)
    shape = f'assign: {value} is not of the shape {{"topic": [0, 1]}}'
    if not isinstance(parsed, dict) or not parsed:
        raise Refused(shape)
    keys: dict[TopicPartition, None] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not partitions or not all(map(_is_natural, partitions)):
            raise Refused(shape)
        keys.update(dict.fromkeys((topic, partition) for partition in partitions))
    return tuple(keys)


def _offsets(name: str, value: str, *, refused: Literal["earliest", "latest"]) -> OffsetChoice:
    """`refused` is the one of earliest and latest that the option does not accept."""
    word = value.strip().lower()
    if word == refused:
        raise Refused(f"{name}={refused} is not possible in a batch query")
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    parsed = _parsed_json(name, value)
    shape = f'{name}: {value} is neither earliest, latest nor of the shape {{"topic": {{"0": 23}}}}'
    if not isinstance(parsed, dict):
        raise Refused(shape)
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise Refused(shape)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not isinstance(offset, int) or offset < EARLIEST:
                raise Refused(shape)
            if offset == (LATEST if refused == "latest" else EARLIEST):
                raise Refused(f"{name}: {offset} ({refused}) for {topic}-{partition} is not possible in a batch query")
            offsets[topic, int(partition)] = offset
    return offsets


def _parsed_json(name: str, value: str) -> object:
    try:
        parsed: object = json.loads(value)
    except ValueError as problem:
        raise Refused(f"{name}: {value} is not JSON: {problem}") from None
    return parsed


def _boolean(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise Refused(f"{name}: {value} is neither true nor false")
    return word == "true"


def _count(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) == 0:
        raise Refused(f"{name}: {value} is not a whole number above 0")
    return int(value)


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
