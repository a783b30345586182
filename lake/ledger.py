"""The ledger of a table: the topic whose records the table has, and the offsets up to which it has them. It is stored
in the properties of the table's own snapshots.

A snapshot has rows and the offsets up to which they reach, so one commit changes both. The newest snapshot with such
properties on the main branch is the ledger; snapshots of other programs (a compaction of small files) are skipped. If a
table is rolled back to an earlier snapshot, its offsets go back, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from moldau.lake.offset_runs import OffsetDigest
from moldau.tables.refusals import IsolationDiffers, Refused, TopicRecreated

PREFIX: Final = "moldau."
OFFSETS: Final = "moldau.offsets"
ATTEMPT: Final = "moldau.attempt"
TAKEN: Final = "moldau.taken"
TAG: Final = "moldau-offsets"
"""The tag of the newest snapshot with offsets. A program that expires snapshots keeps those with a tag."""


class RecordDigests(NamedTuple):
    """The records of a partition that were read for a table since the table was begun, as digests."""

    records: OffsetDigest = OffsetDigest()
    misfits: OffsetDigest = OffsetDigest()
    """The records that are not in the table, because they were skipped or are dead letters."""

    def plus(self, more: RecordDigests) -> RecordDigests:
        return RecordDigests(self.records.plus(more.records), self.misfits.plus(more.misfits))


NOTHING_TAKEN: Final[Mapping[int, RecordDigests]] = {}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The topic whose records a table has, and the offsets up to which it has them."""

    topic: str
    mode: str
    """The mode of the table: `append` or `upsert` (by key)."""
    isolation: str
    writer: str
    """The id of the process that wrote this ledger."""
    offsets: Mapping[int, int]
    """For each partition, the offset from which the next round reads."""
    topic_id: str | None = None
    cluster_id: str | None = None
    taken: Mapping[int, RecordDigests] | None = None
    """The records that were read of each partition; None in a table that was begun by a version that did not count
    them."""

    def properties(self, attempt: str) -> dict[str, str]:
        """The properties of the snapshot that an attempt of a commit adds. `attempt`: the id of the attempt."""
        named = {
            "moldau.topic": self.topic,
            "moldau.topic.id": self.topic_id,
            "moldau.cluster.id": self.cluster_id,
            "moldau.mode": self.mode,
            "moldau.isolation": self.isolation,
            "moldau.writer": self.writer,
            ATTEMPT: attempt,
            OFFSETS: json.dumps({str(partition): offset for partition, offset in sorted(self.offsets.items())}),
            TAKEN: None
            if self.taken is None
            else json.dumps({str(each): self.taken[each] for each in sorted(self.taken)}),
        }
        return {name: value for name, value in named.items() if value is not None}

    def reaching(self, offsets: Mapping[int, int], taken: Mapping[int, RecordDigests] = NOTHING_TAKEN) -> Ledger:
        """Return the ledger after a commit. `offsets`: the offsets up to which the commit reads. `taken`: the digests
        of the records that were read for it."""
        known = self.taken
        if known is not None:
            known = {**known, **{each: known.get(each, RecordDigests()).plus(more) for each, more in taken.items()}}
        return replace(self, offsets=dict(self.offsets) | dict(offsets), taken=known)

    def check(self, other: Ledger, table: str) -> None:
        """Raise `Refused` if a process with the ledger `other` would continue another topic, another cluster or another
        mode. Raise `TopicRecreated` for another topic of the same name, and `IsolationDiffers` for the other isolation
        level.
        """
        if other.topic != self.topic:
            raise Refused(f"table {table} has the topic {self.topic}, not {other.topic}")
        if None not in (self.cluster_id, other.cluster_id) and self.cluster_id != other.cluster_id:
            raise Refused(f"table {table} is of cluster {self.cluster_id}, and these places are of {other.cluster_id}")
        if None not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id:
            raise TopicRecreated(
                f"table {table} has the topic {self.topic} with the id {self.topic_id}, which was deleted; the topic "
                f"of this name now has the id {other.topic_id}"
            )
        if other.mode != self.mode:
            raise Refused(
                f"table {table} was begun with --mode {self.mode}, and this run has {other.mode}: --mode {self.mode} "
                "continues it"
            )
        if other.isolation != self.isolation:
            raise IsolationDiffers(
                f"table {table} was begun with {self.isolation}, and this run has {other.isolation}: "
                f"--{self.isolation.replace('_', '-')} continues it"
            )


def ledger_in(summary: Mapping[str, str] | None, where: str) -> Ledger | None:
    """Parse the ledger in the properties of a snapshot; None if another program made the snapshot. Raises `Refused` for
    properties that cannot be parsed; `where` names the snapshot in the message."""
    written = None if summary is None else summary.get(OFFSETS)
    if summary is None or written is None:
        return None
    try:
        offsets = {int(partition): int(offset) for partition, offset in json.loads(written).items()}
        required = [summary.get(f"{PREFIX}{name}") for name in ("topic", "mode", "isolation", "writer")]
        topic, mode, isolation, writer = map(_given, required)
        taken = None if TAKEN not in summary else _taken(summary[TAKEN])
    except (ValueError, TypeError, AttributeError) as problem:
        raise Refused(f"{where}: the properties {PREFIX}* are damaged: {problem}") from None
    ids = summary.get("moldau.topic.id"), summary.get("moldau.cluster.id")
    return Ledger(topic, mode, isolation, writer, offsets, *ids, taken)


def _taken(written: str) -> dict[int, RecordDigests]:
    parsed = json.loads(written).items()
    return {
        int(partition): RecordDigests(*(OffsetDigest(int(n), int(sum)) for n, sum in both))
        for partition, both in parsed
    }


def _given(value: str | None) -> str:
    if value is None:
        raise ValueError("one of them is missing")
    return value
