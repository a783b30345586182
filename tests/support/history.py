"""What clients did and what came of it: sends in the order of each producer, polls in the order of each reader.

Every value is written once. What a producer was told counts, not what it hoped: a send without an answer is UNKNOWN,
and may or may not be read later. FAILED is only what certainly did not happen.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Key: TypeAlias = tuple[str, int]
"""A topic's partition."""
Value: TypeAlias = Hashable
OFFSET_UNKNOWN = -1


class Told(Enum):
    """The outcome of a send, as its producer knows it."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """One record that was sent.

    `producer` names one incarnation: the order of sends of two incarnations is not known.
    """

    producer: str
    key: Key
    value: Value
    told: Told = Told.UNKNOWN
    offset: int = OFFSET_UNKNOWN

    def acknowledge(self, offset: int = OFFSET_UNKNOWN) -> None:
        self.told, self.offset = Told.ACKNOWLEDGED, offset

    def fail(self) -> None:
        self.told = Told.FAILED


@dataclass(slots=True)
class Reading:
    """What one reader got from one partition, in the order in which it came, without a seek meanwhile.

    A `complete` one began at the first offset, after all producers had ended, and went on to the end.
    """

    reader: str
    key: Key
    records: list[tuple[int, Value]] = field(default_factory=list)
    is_complete: bool = False

    def got(self, offset: int, value: Value) -> None:
        self.records.append((offset, value))


@dataclass(slots=True)
class History:
    """All that the clients of one run recorded."""

    sends: list[Send] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def send(self, producer: str, key: Key, value: Value) -> Send:
        """Record that a producer has sent: to be called in its order, before anybody can know what comes of it."""
        sent = Send(producer, key, value)
        self.sends.append(sent)
        return sent

    def reading(self, reader: str, key: Key, *, is_complete: bool = False) -> Reading:
        begun = Reading(reader, key, is_complete=is_complete)
        self.readings.append(begun)
        return begun

    def add(self, sends: Iterable[Send], readings: Iterable[Reading] = ()) -> None:
        self.sends.extend(sends)
        self.readings.extend(readings)

    @property
    def acknowledged_count(self) -> int:
        return sum(sent.told is Told.ACKNOWLEDGED for sent in self.sends)
