"""What a coordinator reads of its log while the log is being compacted.

The cleaner maps the last offset of each key up to some offset of the log, and then replaces its segments one after the
other. A reader that is under way has read the first of them before, finds others cleaned, and the rest as it was:

    as they were appended │ cleaned: without the records that a later one supersedes │ as they were appended
                          first                                                    after       ▲ the map ends here

A tombstone that nothing supersedes stays for `delete.retention.ms`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.runtime.machine import Committed, Loaded
from moldau.coordinator.shard.kinds import change_of
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.record_builder import Record
from tests.support.machine_stage import Batch

Reading = list[tuple[Record, int]]
"""Records, each with the end offset of its batch."""


def readings(log: Sequence[Batch], random: Random, count: int) -> Iterator[Reading]:
    """Readings of a log without transactions, each with other bounds of what was cleaned."""
    end_offset = log[-1].end_offset
    for _ in range(count):
        first, after = sorted((random.randrange(len(log)), random.randrange(len(log) + 1)))
        cleaned_to = log[after - 1].end_offset if after else 0
        yield reading(log, first, after, random.randint(cleaned_to, end_offset))


def reading(log: Sequence[Batch], first: int, after: int, map_end: int) -> Reading:
    """The records of a log of which the batches from `first` to `after` were cleaned, with a map of the keys below the
    offset `map_end`."""
    last: dict[bytes | None, int] = {}
    for batch in log:
        assert batch.transaction is None
        last |= {record.key: offset for offset, record in numbered(batch) if offset < map_end}
    return [
        (record, batch.end_offset)
        for number, batch in enumerate(log)
        for offset, record in numbered(batch)
        if not first <= number < after or last.get(record.key, offset) <= offset
    ]


def numbered(batch: Batch) -> Iterator[tuple[int, Record]]:
    return enumerate(batch.records, batch.base_offset)


def loaded_from(read: Reading, config: GroupConfig, image: CoordinatorImage, wall_ms: int) -> GroupShard:
    """The group coordinator that has loaded these records."""
    end_offset = read[-1][1]
    shard = GroupShard(config, end_offset, lambda: image)
    for record, batch_end_offset in read:
        change = change_of(record)
        assert change is not None
        shard.replay(change, batch_end_offset)
    shard.step(Committed(end_offset), 0, wall_ms)
    shard.step(Loaded(), 0, wall_ms)
    return shard
