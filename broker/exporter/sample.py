"""Takes samples: the lag of each group that this broker coordinates, at one moment.

coordinators ──▶ offsets of groups ──┐
leaders ──▶ ends of logs ────────────┴──▶ bounds of all ──▶ the furthest partitions of each, counted
"""

from __future__ import annotations

import asyncio
from array import array
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
from moldau.broker.console.lag import ends_of
from moldau.broker.console.partitions import READ_COMMITTED
from moldau.broker.exporter.bounds import PIECE, GroupPartitions, LagBounds, LogOffsets, Partition
from moldau.broker.exporter.counting import CountedLag, CountKey, LagRange, UnreadCounter
from moldau.coordinator.offsets.offset_store import GroupOffsets
from moldau.protocol.errors import ErrorCode

COUNTED: Final = 200
"""The number of partitions whose records are counted, or found in an earlier count, in one iteration of the event
loop.
"""
GROUPS: Final = 50
"""The number of groups whose counts are looked up in one iteration of the event loop."""
GROUP_WEIGHT: Final = 100
"""The constant work for one group, expressed as a number of partitions."""
COUNTED_PARTITIONS_MAX: Final = (4_000, 4)
"""The number of partitions whose records one sample counts: of all groups together, shared equally among them, and the
least for each group. They are the partitions of a group with the most offsets to the end of the log.
"""
KEPT_MAX: Final = 1 << 20
"""The most committed offsets, over all groups, whose lags are kept for the next sample. Each takes about 40 bytes."""
KEYS_REFRESH_SAMPLES: Final = 20
"""The number of samples after which the set of all groups' partitions is collected again, without those that are
gone. It is not collected if every group has had the same partitions in all these samples.
"""
offset_of: Final = itemgetter(0)
"""Gets the offset from a `CommittedOffset`."""


class LagSummary(NamedTuple):
    """The lag of a group, summed over its partitions."""

    records: int | None
    """The records of all partitions together; None if the end of no log is known."""
    most: int
    worst: Partition | None
    """The partition that is furthest behind; None if none is behind."""
    uncounted: int
    """The number of partitions that are behind, but whose records were not counted."""


@dataclass(slots=True, eq=False, repr=False)
class GroupLag:
    id: str
    kind: str
    offsets: GroupPartitions
    """The committed offsets; those of share partitions are their start offsets."""
    isolation: int = READ_COMMITTED
    source: GroupOffsets | None = None
    """The coordinator's state from which the offsets were read; None for a share group."""
    changes: int = 0
    """The number of changes of `source` when the offsets were read."""
    removals: int = 0
    """The number of removals of `source` when the offsets were read."""
    is_settled: bool = False
    """Whether `bounds` were computed from the present committed offsets."""
    bounds: LagBounds = field(default_factory=lambda: LagBounds(0))
    unread: Sequence[tuple[int, LagRange]] = ()
    """The unread ranges to count, those of the partitions that are furthest behind first. Each comes with the index of
    its partition in `bounds`.
    """
    places: list[CountKey] = field(default_factory=list)
    """The keys of the counts of `unread`."""
    behind: dict[int, CountedLag] = field(default_factory=dict)
    """The results of counting, by index of the partition in `bounds`. The lag in `bounds` is set to the result."""
    summary: LagSummary | None = None

    def commit(self, committed: array[int]) -> None:
        """Replace the committed offsets. The group has the same partitions as before."""
        self.is_settled = False
        self.offsets.commit(committed)

    def has_partitions_of(self, of: GroupOffsets) -> bool:
        """Whether the coordinator's state `of` has the same partitions as these offsets, in the same order."""
        return self.source is of and self.removals == of.removals and len(self.offsets.keys) == len(of.offsets)

    async def update_bounds(self, logs: LogOffsets, furthest_max: int) -> bool:
        """Compute `bounds` from the ends of the logs. Returns whether they have changed."""
        if logs.is_same and self.is_settled:
            return False
        bounds = await self.offsets.bounds(logs, furthest_max)
        self.is_settled = True
        if bounds is not None:
            self.bounds, self.behind, self.places, self.summary = bounds, {}, [], None
        return bounds is not None

    def note_behind(self, place: int, behind: CountedLag) -> None:
        """Note the result of counting the partition with the index `place` in `bounds`."""
        if self.behind.get(place) != behind:
            self.behind[place] = behind
            self.bounds.replace_lag(place, behind.records)
            self.summary = None

    @property
    def is_counted(self) -> bool:
        """Whether an earlier sample has counted all unread ranges of the group to their ends, so that this sample need
        not count again.
        """
        return (
            self.kind != SHARE
            and len(self.behind) == len(self.unread)
            and all(each.is_counted for each in self.behind.values())
        )

    def summed_lag(self) -> LagSummary:
        """The lag summed over all partitions. The sums are kept until a lag changes."""
        if self.summary is None:
            bounds = self.bounds
            most = bounds.most
            uncounted = bounds.behind_count - sum(each.is_counted for each in self.behind.values() if each.records)
            worst = bounds.keys[bounds.lags.index(most)] if most else None
            self.summary = LagSummary(bounds.sum if bounds.keys else None, most, worst, uncounted)
        return self.summary

    @property
    def first_ms(self) -> int | None:
        """The timestamp of the oldest unread record; None if there is none, or if it is not known."""
        return min((each.first_ms for each in self.behind.values() if each.first_ms is not None), default=None)


class LagSampler:
    """Takes samples of the lags of all groups. The bounds of a group are kept from sample to sample while its committed
    offsets and the ends of its logs stay the same, for up to `KEPT_MAX` offsets of all groups.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._counter = UnreadCounter()
        self._turn = 0
        self._kept: dict[str, GroupLag] = {}
        self._logs: dict[int, LogOffsets] = {}
        """The partitions that groups read, with their start and end offsets, by isolation level."""
        self._has_gone = False
        """Whether `_logs` may have partitions that no group reads any more."""
        self._most = 0
        """The number of partitions of each group whose records are counted."""

    async def take_sample(self) -> list[GroupLag]:
        """Take a sample: the lags of all groups that this broker coordinates, sorted by id. Each sample begins counting
        with another group, so that every group is counted at some time, even if there are very many.
        """
        client, turn = self._client, self._turn
        self._turn += 1
        groups = sorted([group async for group in self._groups()], key=lambda group: group.id)
        await self._ask_ends(groups, begins_anew=self._has_gone and turn % KEYS_REFRESH_SAMPLES == 0)
        most = max(COUNTED_PARTITIONS_MAX[0] // max(len(groups), 1), COUNTED_PARTITIONS_MAX[1])
        is_same_most, self._most, left, seen = most == self._most, most, KEPT_MAX, 0
        self._kept = {}
        for group in groups:
            if not is_same_most:
                group.commit(group.offsets.committed)  # What was counted stands in its bounds.
            if await group.update_bounds(self._logs[group.isolation], most):
                group.unread = await _unread(client, group)
            size = len(group.offsets.keys)
            left -= size
            if left >= 0 and group.kind != SHARE:
                self._kept[group.id] = group
            seen += size
            if seen > PIECE:
                seen = 0
                await asyncio.sleep(0)
        await self._count(groups, turn)
        return groups

    async def _count(self, groups: Sequence[GroupLag], turn: int) -> None:
        """Count the unread records of the partition that is furthest behind in each group, then of the second one in
        each group, and so on.
        """
        counter, client = self._counter, self._client
        counter.begin()
        first = turn % len(groups) if groups else 0
        ranked = []
        for number, group in enumerate((*groups[first:], *groups[:first]), 1):
            if number % GROUPS == 0:
                await asyncio.sleep(0)
            if group.is_counted:
                counter.keep_counts(group.places)
            else:
                group.places = [counter.key_of(client, unread) for _, unread in group.unread]
                ranked.append([(group, *each) for each in zip(group.places, group.unread, strict=True)])
        seen = 0
        for rank in zip_longest(*ranked):
            for group, place, (index, unread) in filter(None, rank):
                seen += 1
                if seen % COUNTED == 0:
                    await asyncio.sleep(0)
                group.note_behind(
                    index, counter.known_result(place, unread) or await counter.count_behind(client, place, unread)
                )

    async def _groups(self) -> AsyncIterator[GroupLag]:
        """The groups that this broker coordinates, with their committed offsets. If a group has the same partitions as
        in the previous sample, the same object is used.
        """
        client = self._client
        shared: list[Group] = []
        seen = 0
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
                kept = self._kept.get(group_id)
                if kept is None or kept.kind != kind or kept.source is not of or kept.changes != of.changes:
                    committed = array("q", map(offset_of, of.offsets.values()))
                    if kept is not None and kept.kind == kind and kept.has_partitions_of(of):
                        kept.commit(committed)
                    else:
                        kept = GroupLag(group_id, kind, GroupPartitions(list(of.offsets), committed), source=of)
                    kept.changes, kept.removals = of.changes, of.removals
                    seen += len(committed)
                yield kept
                seen += GROUP_WEIGHT
                if seen > PIECE:
                    seen = 0
                    await asyncio.sleep(0)
        for group_id, told in (await committed_offsets(client, shared)).items():
            known = {key: offset for key, offset in told.offsets.items() if offset is not None}
            yield GroupLag(group_id, SHARE, GroupPartitions(list(known), array("q", known.values())), told.isolation)

    async def _ask_ends(self, groups: Sequence[GroupLag], *, begins_anew: bool) -> None:
        """Ask for the start and end offsets of all partitions that groups read. With `begins_anew`, the partitions of
        groups and topics that are gone are dropped first.
        """
        if begins_anew:
            self._logs = {}
        same = sum(group is self._kept.get(group.id) for group in groups)
        self._has_gone = (self._has_gone and not begins_anew) or same < max(len(groups), len(self._kept))
        seen = 0
        for group in groups:
            if begins_anew or group is not self._kept.get(group.id):
                group.offsets.look_up_positions(self._logs.setdefault(group.isolation, LogOffsets()))
                seen += len(group.offsets.keys)
                if seen > PIECE:
                    seen = 0
                    await asyncio.sleep(0)
        for level, logs in self._logs.items():
            await logs.take(await ends_of(self._client, logs, level))


async def _unread(client: KafkaClient, group: GroupLag) -> list[tuple[int, LagRange]]:
    """The unread ranges of the partitions that are furthest behind in a group, the furthest first. Each comes with the
    index of its partition in the group's `bounds`.
    """
    bounds = group.bounds
    places = bounds.furthest
    finished: Mapping[Partition, OffsetSet | None] = {}
    if group.kind == SHARE:
        starts: dict[Partition, int | None] = {bounds.keys[place]: bounds.begins[place] for place in places}
        last = {bounds.keys[place]: bounds.begins[place] + bounds.lags[place] for place in places}
        finished = finished_offsets(await share_states(client, group.id, CommittedOffsets(starts, is_share=True), last))
    found = []
    for place in places:
        key, begin = bounds.keys[place], bounds.begins[place]
        left_out = finished.get(key, NO_OFFSETS)
        found.append((place, LagRange(key, begin, begin + bounds.lags[place], group.isolation, left_out)))
    return found
