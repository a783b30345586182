"""The options for the start and end of a read: the three kinds of Spark's Kafka connector.

| first of these that is given             | says                                                          |
|------------------------------------------|---------------------------------------------------------------|
| startingTimestamp, endingTimestamp       | one time in ms for all partitions                             |
| startingOffsetsByTimestamp, endingOff... | JSON: a time for each partition                               |
| startingOffsets, endingOffsets           | earliest, latest, or JSON: an offset for each partition       |

If several of these options are given, only the first one in this order counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.options.option_values import milliseconds, parsed_json
from moldau.tables.refusals import Refused

LATEST: Final = -1
EARLIEST: Final = -2
"""The offset that means earliest in the connector's JSON; `LATEST` means latest."""

ByPartition: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """A start or an end by time: the offset of the first record at or after the time of each partition."""

    times: ByPartition | int
    """The times (ms): one for each partition, or one for all partitions."""

    def of(self, key: TopicPartition) -> int:
        return self.times if isinstance(self.times, int) else self.times[key]


OffsetChoice: TypeAlias = Literal["earliest", "latest"] | ByPartition | Timestamps


@dataclass(frozen=True, slots=True)
class ReadBound:
    """The start or the end of a read: the prefix of its option names, its default, and the word that its options refuse
    ("" for none).
    """

    name: Literal["starting", "ending"]
    default: Literal["earliest", "latest"]
    refused: Literal["earliest", "latest", ""]

    @property
    def offsets(self) -> str:
        return f"{self.name}Offsets"

    @property
    def by_timestamp(self) -> str:
        return f"{self.name}OffsetsByTimestamp"

    @property
    def timestamp(self) -> str:
        return f"{self.name}Timestamp"


STARTING: Final = ReadBound("starting", "earliest", "latest")
STREAM_STARTING: Final = ReadBound("starting", "latest", "")
ENDING: Final = ReadBound("ending", "latest", "earliest")


def offset_choice(side: ReadBound, given: Mapping[str, str]) -> OffsetChoice:
    """Parse the options for the start or the end of a read. The names in `given` are in lower case.
    Raises `Refused`."""
    if (value := given.get(side.timestamp.lower())) is not None:
        return Timestamps(milliseconds(side.timestamp, value))
    if (value := given.get(side.by_timestamp.lower())) is not None:
        return Timestamps(_numbers(side.by_timestamp, value))
    return _offsets(side, given.get(side.offsets.lower(), side.default))


def refuse_reversed(starting: OffsetChoice, ending: OffsetChoice) -> None:
    """Raise `Refused` if a partition would end before it starts."""
    if isinstance(starting, Timestamps) and isinstance(ending, Timestamps):
        refuse_reversed_numbers("time", starting.times, ending.times)
    elif not isinstance(starting, str | Timestamps) and not isinstance(ending, str | Timestamps):
        refuse_reversed_numbers("offset", starting, ending)


def refuse_reversed_numbers(what: str, first: ByPartition | int, last: ByPartition | int) -> None:
    if isinstance(first, int) and isinstance(last, int):
        if first > last:
            raise Refused(f"startingTimestamp {first} is past endingTimestamp {last}")
    elif not isinstance(first, int) and not isinstance(last, int):
        for key in sorted(first.keys() & last.keys()):
            if first[key] > last[key] >= 0:
                raise Refused(f"{key[0]}-{key[1]}: the starting {what} {first[key]} is past the ending one {last[key]}")


def _offsets(side: ReadBound, value: str) -> OffsetChoice:
    name, word = side.offsets, value.strip().lower()
    if word == side.refused:
        raise Refused(f"{name}={side.refused} is not possible in a batch query")
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    offsets = _numbers(name, value, lowest=EARLIEST, otherwise="neither earliest, latest nor ")
    for (topic, partition), offset in offsets.items():
        if side.refused and offset == (LATEST if side.refused == "latest" else EARLIEST):
            raise Refused(f"{name}: {offset} ({side.refused}) for {topic}-{partition} is not possible in a batch query")
    return offsets


def _numbers(name: str, value: str, *, lowest: int | None = None, otherwise: str = "not ") -> ByPartition:
    """Parse JSON of the shape {"topic": {"0": number}}."""
    parsed = parsed_json(name, value)
    shape = f'{name}: {value} is {otherwise}of the shape {{"topic": {{"0": 23}}}}'
    if not isinstance(parsed, dict) or not all(isinstance(each, dict) for each in parsed.values()):
        raise Refused(shape)
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        for partition, number in partitions.items():
            is_number = isinstance(number, int) and not isinstance(number, bool)
            if not partition.isdecimal() or not is_number or (lowest is not None and number < lowest):
                raise Refused(shape)
            numbers[topic, int(partition)] = number
    return numbers
