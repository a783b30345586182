"""A sample: how far each group that this broker coordinates is behind, at one moment.

coordinators ──▶ offsets of groups ──┐
leaders ──▶ ends of logs ────────────┴──▶ bounds of all ──▶ the furthest partitions of each, counted
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import itemgetter
from typing import Final

from moldau.broker.console.decoding.counting import NO_OFFSETS, OffsetSet
from moldau.broker.console.groups import SHARE, CommittedOffsets, Group, committed_offsets, finished_offsets
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import Ends, ends_of
from moldau.broker.console.partitions import READ_COMMITTED
from moldau.broker.exporter.bounds import Bounds, Partition
from moldau.broker.exporter.counting import Behind, Counter, Unread
from moldau.protocol.errors import ErrorCode

PIECE: Final = 200
"""Partitions that are looked at in one iteration of the event loop."""
FURTHEST: Final = (4_000, 4)
"""Partitions that are counted, or were counted before: of all groups together, and of one group at least. Of each
group they are those with most offsets to the end.
"""
offset_of: Final = itemgetter(0)
"""The offset of a committed offset."""


@dataclass(slots=True, eq=False, repr=False)
class GroupLag:
    """The lag of one group."""

    id: str
    kind: str
    keys: Sequence[Partition]
    offsets: Sequence[int]
    """The committed offset of each, or the start offset of a share partition."""
    isolation: int = READ_COMMITTED
    bounds: Bounds = field(default_factory=Bounds)
    behind: dict[int, Behind] = field(default_factory=dict)
    """What was counted, by the place of the partition in `bounds`, whose lag is the same then."""

    @property
    def records(self) -> int | None:
        """The records of all partitions; None if no end of a log is known."""
        return sum(self.bounds.lags) if self.bounds.lags else None

    @property
    def first_ms(self) -> int | None:
        """The timestamp of the oldest record; None if there is none, or if it is not known."""
        return min((each.first_ms for each in self.behind.values() if each.first_ms is not None), default=None)

    @property
    def uncounted(self) -> int:
        """The number of partitions that are behind and whose records were not counted."""
        lags = self.bounds.lags
        return len(lags) - lags.count(0) - sum(each.is_counted for each in self.behind.values() if each.records)


async def take(client: KafkaClient, counter: Counter, turn: int) -> list[GroupLag]:
    """The lags of all groups that this broker coordinates, by id. `turn`: the number of the sample. The counting begins
    with another group each time, so that each has its turn if there are very many.
    """
    groups = sorted([group async for group in _groups(client)], key=lambda group: group.id)
    ends = await _ends(client, groups)
    starts = {level: {key: offset for key, offset in of.first.items() if offset} for level, of in ends.items()}
    for group in groups:
        await _bound(group, starts[group.isolation], ends[group.isolation].last)
    most = max(FURTHEST[0] // max(len(groups), 1), FURTHEST[1])
    ranked = [await _furthest(client, group, most, ends[group.isolation].last) for group in groups]
    counter.begin()
    first = turn % len(ranked) if ranked else 0
    seen = 0
    # Of each group the partition that is furthest behind, then of each the second one, and so on.
    for rank in zip_longest(*ranked[first:], *ranked[:first]):
        for group, place, unread in filter(None, rank):
            seen += 1
            if seen % PIECE == 0:
                await asyncio.sleep(0)
            behind = await counter.behind(client, unread)
            group.behind[place], group.bounds.lags[place] = behind, behind.records
    return groups


async def _groups(client: KafkaClient) -> AsyncIterator[GroupLag]:
    """The groups that this broker coordinates, with their offsets."""
    shared: list[Group] = []
    node_id = client.ports.config.node_id
    for runner in client.ports.services.groups.runners:
        if runner.refusal is not ErrorCode.NONE:
            continue
        for listed in runner.shard.list_groups([], []):
            if listed is None:
                continue
            if listed.group_type == SHARE:
                shared.append(Group(listed.group_id, SHARE, listed.group_state, listed.protocol_type, node_id))
                continue
            of = runner.shard.offsets_in_force(listed.group_id)
            yield GroupLag(listed.group_id, listed.group_type, list(of), list(map(offset_of, of.values())))
            await asyncio.sleep(0)
    for group_id, told in (await committed_offsets(client, shared)).items():
        known = {key: offset for key, offset in told.offsets.items() if offset is not None}
        yield GroupLag(group_id, SHARE, list(known), list(known.values()), told.isolation)


async def _ends(client: KafkaClient, groups: Sequence[GroupLag]) -> dict[int, Ends]:
    """The ends of all partitions of groups, by isolation."""
    wanted: dict[int, set[Partition]] = {}
    for count, group in enumerate(groups, 1):
        wanted.setdefault(group.isolation, set()).update(group.keys)
        if count % 10 == 0:
            await asyncio.sleep(0)
    return {isolation: await ends_of(client, keys, isolation) for isolation, keys in wanted.items()}


async def _bound(group: GroupLag, first: Mapping[Partition, int], last: Mapping[Partition, int]) -> None:
    for begin in range(0, len(group.keys), PIECE):
        piece = slice(begin, begin + PIECE)
        group.bounds.add(group.keys[piece], group.offsets[piece], first, last)
        await asyncio.sleep(0)


async def _furthest(
    client: KafkaClient, group: GroupLag, most: int, last: Mapping[Partition, int]
) -> list[tuple[GroupLag, int, Unread]]:
    """What is counted of a group, with the places in its bounds, the partition that is furthest behind first."""
    bounds = group.bounds
    places = bounds.furthest(most)
    finished: Mapping[Partition, OffsetSet | None] = {}
    if group.kind == SHARE:
        starts = {bounds.keys[place]: bounds.begins[place] for place in places}
        finished = await finished_offsets(client, group.id, CommittedOffsets({**starts}, is_share=True), last)
    found = []
    for place in places:
        key, begin = bounds.keys[place], bounds.begins[place]
        left_out = finished.get(key, NO_OFFSETS)
        found.append((group, place, Unread(key, begin, begin + bounds.lags[place], group.isolation, left_out)))
    await asyncio.sleep(0)
    return found
