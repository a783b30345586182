"""The promises about records, each as a pure function over a history that says where it was broken.

    inconsistent-offsets    one offset held two values
    duplicate               one value at two offsets
    aborted-read            read, though its producer was told that it failed
    unwritten-read          read, though nobody sent it
    lost-write              acknowledged, not read, although something behind it was
    unseen                  acknowledged, and missing from a complete reading: the tail is gone
    nonmonotonic-send       a producer's later record lies before an earlier one
    nonmonotonic-poll       a reader went backwards
    poll-skip               a reader passed over a record that is there

After Jepsen's checker for Kafka, for records outside of transactions. Producers are idempotent, readers assign
partitions themselves: everything in the list is then forbidden.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.support.history import OFFSET_UNKNOWN, History, Key, Reading, Send, Told, Value

SHOWN = 5


class Kind(Enum):
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted-read"
    UNWRITTEN_READ = "unwritten-read"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    POLL_SKIP = "poll-skip"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    key: Key
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value} in {self.key[0]}-{self.key[1]}: {self.text}"


class _Partition:
    """The sends and reads of one partition."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.sends: list[Send] = []
        self.readings: list[Reading] = []
        self.held: dict[int, dict[Value, None]] = {}  # offset: the values seen there, in order of appearance
        self.places: dict[Value, dict[int, None]] = {}
        self.read: dict[Value, None] = {}

    def digest(self) -> None:
        """The values by offset, from all reads and acknowledgements."""
        for reading in self.readings:
            for offset, value in reading.records:
                self._place(offset, value)
                self.read[value] = None
        for sent in self.sends:
            if sent.told is Told.ACKNOWLEDGED and sent.offset != OFFSET_UNKNOWN:
                self._place(sent.offset, sent.value)

    def _place(self, offset: int, value: Value) -> None:
        self.held.setdefault(offset, {})[value] = None
        self.places.setdefault(value, {})[offset] = None


def anomalies(history: History) -> list[Anomaly]:
    """All violations, partition by partition; empty if there is none."""
    partitions: dict[Key, _Partition] = {}
    for sent in history.sends:
        partitions.setdefault(sent.key, _Partition(sent.key)).sends.append(sent)
    for reading in history.readings:
        partitions.setdefault(reading.key, _Partition(reading.key)).readings.append(reading)
    found: list[Anomaly] = []
    for partition in partitions.values():
        partition.digest()
        for check in CHECKS:
            found.extend(check(partition))
    return found


def _inconsistent_offsets(partition: _Partition) -> Iterator[Anomaly]:
    for offset, values in partition.held.items():
        if len(values) > 1:
            yield Anomaly(Kind.INCONSISTENT_OFFSETS, partition.key, f"offset {offset} held {_some([*values])}")


def _duplicates(partition: _Partition) -> Iterator[Anomaly]:
    for value, offsets in partition.places.items():
        if len(offsets) > 1:
            yield Anomaly(Kind.DUPLICATE, partition.key, f"{value!r} lies at {_some(sorted(offsets))}")


def _reads_of_nothing(partition: _Partition) -> Iterator[Anomaly]:
    told = {sent.value: sent.told for sent in partition.sends}
    for value in partition.read:
        if value not in told:
            yield Anomaly(Kind.UNWRITTEN_READ, partition.key, f"nobody sent {value!r}")
        elif told[value] is Told.FAILED:
            yield Anomaly(Kind.ABORTED_READ, partition.key, f"{value!r} was said to have failed")


def _lost_writes(partition: _Partition) -> Iterator[Anomaly]:
    """Only between the first and the last record that were read: how far a reader would have come is not known."""
    firsts = [min(partition.places[value]) for value in partition.read]
    last = max(firsts, default=-1)
    first = 0 if any(reading.is_complete for reading in partition.readings) else min(firsts, default=0)
    lost = [
        sent
        for sent in partition.sends
        if sent.told is Told.ACKNOWLEDGED
        and sent.offset != OFFSET_UNKNOWN
        and first <= min(partition.places[sent.value])
        and max(partition.places[sent.value]) <= last
        and sent.value not in partition.read
    ]
    if lost:
        described = _some([f"{sent.value!r} at {sent.offset}" for sent in lost])
        yield Anomaly(Kind.LOST_WRITE, partition.key, f"acknowledged and not there: {described}")


def _unseen(partition: _Partition) -> Iterator[Anomaly]:
    acknowledged = [sent.value for sent in partition.sends if sent.told is Told.ACKNOWLEDGED]
    for reading in partition.readings:
        if reading.is_complete:
            seen = {value for _, value in reading.records}
            missing = [value for value in acknowledged if value not in seen]
            if missing:
                text = f"{reading.reader} read everything and did not see {_some(missing)}"
                yield Anomaly(Kind.UNSEEN, partition.key, text)


def _nonmonotonic_sends(partition: _Partition) -> Iterator[Anomaly]:
    """By first places: that a value has two is said by another check."""
    last: dict[str, tuple[int, Value]] = {}
    for sent in partition.sends:
        places = partition.places.get(sent.value)
        if places is None:
            continue
        offset = min(places)
        before = last.get(sent.producer)
        if before is not None and offset <= before[0]:
            text = f"{sent.producer} sent {before[1]!r} first, at {before[0]}, then {sent.value!r}, at {offset}"
            yield Anomaly(Kind.NONMONOTONIC_SEND, partition.key, text)
        last[sent.producer] = offset, sent.value


def _polls(partition: _Partition) -> Iterator[Anomaly]:
    known = sorted(partition.held)
    for reading in partition.readings:
        last: int | None = None
        for offset, _ in reading.records:
            if last is not None and offset <= last:
                text = f"{reading.reader} read offset {offset} after {last}"
                yield Anomaly(Kind.NONMONOTONIC_POLL, partition.key, text)
            elif last is not None and offset > last + 1 and known[bisect_left(known, last + 1)] < offset:
                text = f"{reading.reader} went from offset {last} to {offset}"
                yield Anomaly(Kind.POLL_SKIP, partition.key, text)
            last = offset


CHECKS = (
    _inconsistent_offsets,
    _duplicates,
    _reads_of_nothing,
    _lost_writes,
    _unseen,
    _nonmonotonic_sends,
    _polls,
)


def summary(found: list[Anomaly]) -> dict[str, int]:
    """The number of violations of each kind."""
    counts: defaultdict[str, int] = defaultdict(int)
    for anomaly in found:
        counts[anomaly.kind.value] += 1
    return dict(counts)


def told(found: list[Anomaly]) -> list[str]:
    """The first few of each kind, and how many more there are."""
    lines: list[str] = []
    for kind, count in summary(found).items():
        of_kind = [str(anomaly) for anomaly in found if anomaly.kind.value == kind]
        lines += of_kind[:SHOWN]
        if count > SHOWN:
            lines.append(f"{kind}: {count - SHOWN} more")
    return lines


def _some(values: Sequence[Value]) -> str:
    shown = ", ".join(str(value) for value in values[:SHOWN])
    return shown if len(values) <= SHOWN else f"{shown} and {len(values) - SHOWN} more"
