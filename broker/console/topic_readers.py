"""The groups that read a topic: those that have an offset in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.broker.console.groups import committed_offsets, list_groups
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import ends_of
from moldau.broker.console.partitions import READ_COMMITTED, READ_UNCOMMITTED
from moldau.kraft.image.topics import Topic

ASKED_MAX: Final = 500
"""The most groups whose offsets are requested."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReaderRow:
    id: str
    kind: str
    state: str
    behind: int | None
    """An upper bound of the number of records that the group has not read; None if the end of a log is not known."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopicReaders:
    rows: list[ReaderRow]
    left_out: int
    """The number of groups whose offsets were not requested."""


async def readers_of(client: KafkaClient, topic: Topic) -> TopicReaders:
    """The groups that have an offset in a topic and that the user may describe, sorted by id."""
    listed = sorted((await list_groups(client))[0])
    asked = listed[:ASKED_MAX]
    found = await committed_offsets(client, asked, topic)
    keys = [(topic.name, index) for index in topic.partitions]
    last = {level: (await ends_of(client, keys, level)).last for level in (READ_UNCOMMITTED, READ_COMMITTED)}
    rows = []
    for group in asked:
        of = found[group.id]
        offsets = {key: each for key, each in of.offsets.items() if each is not None and key[0] == topic.name}
        if offsets:
            ends = last[of.isolation]
            behind = [max(ends[key] - offset, 0) for key, offset in offsets.items() if key in ends]
            rows.append(
                ReaderRow(group.id, group.kind, group.state, sum(behind) if len(behind) == len(offsets) else None)
            )
    return TopicReaders(rows, len(listed) - len(asked))
