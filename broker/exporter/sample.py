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
from typing import Final, NamedTuple

from moldau.broker.console.decoding.counting import NO_OFFSETS, OffsetSet
from moldau.broker.console.groups import (
    SHARE,
    CommittedOffsets,
    Group,
    committed_offsets,
    finished_offsets,
    share_states,
)
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
KEPT_MAX: Final = 1 << 20
"""The offsets of groups whose bounds are kept for the next sample: about 40 bytes each."""
KEYS_TURNS: Final = 20
"""The samples after which the partitions of all groups are collected anew."""
offset_of: Final = itemgetter(0)
"""The offset of a committed offset."""


class Summary(NamedTuple):
    """The lags of the partitions of a group."""

    records: int | None
    """Of all; None if no end of a log is known."""
    most: int
    worst: Partition | None
    """The partition that is furthest behind; None if none is behind."""
    uncounted: int
    """The number of partitions that are behind and whose records were not counted."""


@dataclass(slots=True, eq=False, repr=False)
class GroupLag:
    """The lag of one group."""

    id: str
    kind: str
    keys: Sequence[Partition]
    committed: Sequence[tuple[object, ...]]
    """What is committed for each, the offset first; of a share partition that is the start offset."""
    isolation: int = READ_COMMITTED
    bounds: Bounds = field(default_factory=Bounds)
    furthest: Sequence[tuple[int, Unread]] = ()
    """What is counted, with the places in `bounds`, the partition that is furthest behind first."""
    behind: dict[int, Behind] = field(default_factory=dict)
    """What was counted, by the place of the partition in `bounds`, whose lag is the same then."""
    summary: Summary | None = None

    @property
    def offsets(self) -> list[int]:
        """The offset of each partition."""
        return list(map(offset_of, self.committed))

    def note(self, place: int, behind: Behind) -> None:
        """Note what was counted of a partition."""
        if self.behind.get(place) != behind:
            self.behind[place], self.bounds.lags[place] = behind, behind.records
            self.summary = None

    def summed(self) -> Summary:
        """The lags of all partitions, added up once as long as they are the same."""
        if self.summary is None:
            lags, keys = self.bounds.lags, self.bounds.keys
            most = max(lags, default=0)
            uncounted = (
                len(lags) - lags.count(0) - sum(each.is_counted for each in self.behind.values() if each.records)
            )
            worst = keys[lags.index(most)] if most else None
            self.summary = Summary(sum(lags) if lags else None, most, worst, uncounted)
        return self.summary

    @property
    def first_ms(self) -> int | None:
        """The timestamp of the oldest record; None if there is none, or if it is not known."""
        return min((each.first_ms for each in self.behind.values() if each.first_ms is not None), default=None)


class Sampler:
    """Takes one sample after another. A group keeps its bounds as long as its offsets and the ends of its logs are the
    same, for up to `KEPT_MAX` offsets of all groups.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._counter = Counter()
        self._turn = 0
        self._kept: dict[str, GroupLag] = {}
        self._ends: dict[int, Ends] = {}
        """By isolation, of the sample before."""
        self._most = 0
        """The partitions of a group that are counted."""
        self._keys: dict[int, set[Partition]] = {}
        """The partitions whose ends are asked for, by isolation."""

    async def take(self) -> list[GroupLag]:
        """The lags of all groups that this broker coordinates, by id. The counting begins with another group each time,
        so that each has its turn if there are very many.
        """
        client, turn, kept = self._client, self._turn, self._kept
        self._turn += 1
        groups = sorted([group async for group in self._groups()], key=lambda group: group.id)
        ends = await self._new_ends(groups)
        changed = {level: changed_ends(self._ends.get(level), of) for level, of in ends.items()}
        starts = {level: {key: offset for key, offset in of.first.items() if offset} for level, of in ends.items()}
        most = max(FURTHEST[0] // max(len(groups), 1), FURTHEST[1])
        is_same_most, self._most, left = most == self._most, most, KEPT_MAX
        self._kept, self._ends = {}, ends
        for group in groups:
            level = group.isolation
            if not is_same_most or group is not kept.get(group.id) or is_any_of(changed[level], group.keys):
                group.bounds, group.behind, group.summary = Bounds(), {}, None
                await _bound(group, starts[level], ends[level].last)
                group.furthest = await _furthest(client, group, most, ends[level].last)
            left -= len(group.keys)
            if left >= 0 and group.kind != SHARE:
                self._kept[group.id] = group
        await self._count(groups, turn)
        return groups

    async def _count(self, groups: Sequence[GroupLag], turn: int) -> None:
        """Count of each group the partition that is furthest behind, then of each the second one, and so on."""
        self._counter.begin()
        first = turn % len(groups) if groups else 0
        ranked = [[(group, *each) for each in group.furthest] for group in (*groups[first:], *groups[:first])]
        seen = 0
        for rank in zip_longest(*ranked):
            for group, place, unread in filter(None, rank):
                seen += 1
                if seen % PIECE == 0:
                    await asyncio.sleep(0)
                group.note(place, await self._counter.behind(self._client, unread))

    async def _groups(self) -> AsyncIterator[GroupLag]:
        """The groups that this broker coordinates, with their offsets. One whose offsets are those of the sample before
        is the same object.
        """
        client = self._client
        shared: list[Group] = []
        node_id = client.ports.config.node_id
        for runner in client.ports.services.groups.runners:
            if runner.refusal is not ErrorCode.NONE:
                continue
            for listed in runner.shard.list_groups([], []):
                if listed is None:
                    continue
                group_id, kind = listed.group_id, listed.group_type
                if kind == SHARE:
                    shared.append(Group(group_id, SHARE, listed.group_state, listed.protocol_type, node_id))
                    continue
                of = runner.shard.offsets_in_force(group_id)
                keys, committed = list(of), list(of.values())
                kept = self._kept.get(group_id)
                # The lists are of the same objects then, which compares fast.
                if kept is not None and kept.kind == kind and kept.keys == keys and kept.committed == committed:
                    yield kept
                else:
                    yield GroupLag(group_id, kind, keys, committed)
                await asyncio.sleep(0)
        for group_id, told in (await committed_offsets(client, shared)).items():
            known = {key: offset for key, offset in told.offsets.items() if offset is not None}
            yield GroupLag(group_id, SHARE, list(known), [(each,) for each in known.values()], told.isolation)

    async def _new_ends(self, groups: Sequence[GroupLag]) -> dict[int, Ends]:
        """The ends of all partitions of groups, by isolation."""
        begins_anew = self._turn % KEYS_TURNS == 1
        if begins_anew:
            self._keys = {}  # Without those of groups and topics that are gone.
        wanted = self._keys
        for count, group in enumerate(groups, 1):
            keys = wanted.setdefault(group.isolation, set())
            if begins_anew or group is not self._kept.get(group.id):
                keys.update(group.keys)
                if count % 10 == 0:
                    await asyncio.sleep(0)
        return {level: await ends_of(self._client, keys, level) for level, keys in wanted.items()}


def changed_ends(before: Ends | None, now: Ends) -> set[Partition] | None:
    """The partitions whose ends are others than before; None for all."""
    if before is None:
        return None
    found: set[Partition] = set()
    for former, current in ((before.first, now.first), (before.last, now.last)):
        found.update(key for key, offset in current.items() if former.get(key) != offset)
        found.update(former.keys() - current.keys())
    return found


def is_any_of(changed: set[Partition] | None, keys: Sequence[Partition]) -> bool:
    """Whether any of some partitions has changed; None: all have."""
    return changed is None or (bool(changed) and not changed.isdisjoint(keys))


async def _bound(group: GroupLag, first: Mapping[Partition, int], last: Mapping[Partition, int]) -> None:
    offsets = group.offsets
    for begin in range(0, len(group.keys), PIECE):
        piece = slice(begin, begin + PIECE)
        group.bounds.add(group.keys[piece], offsets[piece], first, last)
        await asyncio.sleep(0)


async def _furthest(
    client: KafkaClient, group: GroupLag, most: int, last: Mapping[Partition, int]
) -> list[tuple[int, Unread]]:
    """What is counted of a group, with the places in its bounds, the partition that is furthest behind first."""
    bounds = group.bounds
    places = bounds.furthest(most)
    finished: Mapping[Partition, OffsetSet | None] = {}
    if group.kind == SHARE:
        starts = {bounds.keys[place]: bounds.begins[place] for place in places}
        of = CommittedOffsets({**starts}, is_share=True)
        finished = finished_offsets(await share_states(client, group.id, of, last))
    found = []
    for place in places:
        key, begin = bounds.keys[place], bounds.begins[place]
        left_out = finished.get(key, NO_OFFSETS)
        found.append((place, Unread(key, begin, begin + bounds.lags[place], group.isolation, left_out)))
    await asyncio.sleep(0)
    return found
