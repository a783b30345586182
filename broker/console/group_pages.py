"""The pages about groups: the list of groups with their lags, and one group with its members and offsets."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from moldau.broker.console.group_members import MemberRow, describe_members
from moldau.broker.console.group_reasons import explain_lag
from moldau.broker.console.groups import (
    CommittedOffsets,
    ShareStates,
    committed_offsets,
    coordinator_of,
    finished_offsets,
    group_of,
    list_groups,
    share_states,
)
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import CountingBudget, PartitionEnds, PartitionLag, ends_of, partition_lags
from moldau.broker.console.page import ROWS_MAX, SLICE, Page, PageRequest, Rows, choose_names
from moldau.broker.console.partitions import READ_COMMITTED, READ_UNCOMMITTED, Partition
from moldau.broker.console.remembered import lags_of_last_hour, sparkline_points
from moldau.broker.reasons.explain import Finding
from moldau.security.access import AclOperation, ResourceKind

KINDS: Final = ("", "classic", "consumer", "share", "streams")
SORTED_MAX: Final = 500
"""The most groups whose lags are computed to sort the list."""
LIST_BUDGET: Final = (1 << 22, 1 << 17)
GROUP_BUDGET: Final = (1 << 24, 1 << 21)
"""The bytes that may be read to count records, of all partitions of a page and of one partition: for the list of groups
(`LIST_BUDGET`), and for one group (`GROUP_BUDGET`).
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupRow:
    id: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int
    partitions: int = 0
    records: int | None = None
    """The lag in records, summed over all partitions; None if no offset is committed."""
    is_exact: bool = True
    behind_ms: int | None = None
    """The age (ms) of the first unread record, in the partition that is furthest behind in time."""
    trend: int | None = None
    """The number of records by which the lag has grown in the last hour, or since it has been known. None if it is
    known for fewer than two points in time.
    """


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupList:
    q: str
    kind: str
    sort: str
    groups: Rows[GroupRow]
    errors: list[str]
    compared: int
    """The number of groups whose lags were compared; 0 if all groups were."""


async def describe_groups(visit: PageRequest) -> GroupList:
    sort, kind = visit.choice("sort", ("lag", "name")), visit.choice("kind", KINDS)
    listed, errors = await list_groups(visit.client)
    found = {each.id: each for each in listed if kind in ("", each.kind)}
    size = SORTED_MAX if sort == "lag" else ROWS_MAX
    names, total, next_page = await choose_names(found, visit, lambda name: True, size)
    rows = [GroupRow(*found[name]) for name in names]
    compared = len(names) if sort == "lag" and total > len(names) else 0
    offsets = await committed_offsets(visit.client, [found[name] for name in names])
    ends = await _ends(visit.client, offsets.values())
    if sort == "lag":
        bounds = await lag_upper_bounds(offsets, ends)
        skipped = visit.whole_number("skip", 0, most=SORTED_MAX)
        end = skipped + ROWS_MAX
        if end < len(rows):
            next_page = visit.link(skip=end)
        elif next_page is not None:
            next_page = visit.link(skip=None, after=names[-1])
        rows = heapq.nsmallest(end, rows, key=lambda each: (-bounds[each.id], each.id))[skipped:]
    budget = CountingBudget(*LIST_BUDGET)
    rows = [await _with_lag(visit.client, row, offsets[row.id], ends, budget) for row in rows]
    if sort == "lag":
        rows.sort(key=lambda each: (-(each.records or 0), each.id))
    hours = await lags_of_last_hour(visit.client, {row.id: row.coordinator for row in rows})
    rows = [replace(row, trend=lag_increase(hours.get(row.id, []))) for row in rows]
    return GroupList(visit.field("q"), kind, sort, Rows(rows, total, next_page), errors, compared)


async def _ends(client: KafkaClient, offsets: Iterable[CommittedOffsets]) -> dict[int, PartitionEnds]:
    """The start and end offsets of all partitions in which groups have offsets, by isolation level."""
    keys: dict[int, dict[Partition, None]] = {READ_UNCOMMITTED: {}, READ_COMMITTED: {}}
    for each in offsets:
        keys[each.isolation].update(dict.fromkeys(each.offsets))
    return {isolation: await ends_of(client, found, isolation) for isolation, found in keys.items() if found}


async def lag_upper_bounds(
    offsets: Mapping[str, CommittedOffsets], ends: Mapping[int, PartitionEnds]
) -> dict[str, int]:
    """An upper bound of the lag of each group, by which the list is sorted: the sum of end offset minus committed
    offset over its partitions. The computation lets other tasks of the event loop run.
    """
    bounds: dict[str, int] = {}
    seen = 0
    for group_id, of in offsets.items():
        bound = 0
        for key, offset in of.offsets.items():
            last = ends[of.isolation].last.get(key)
            if offset is not None and last is not None:
                bound += max(last - max(offset, ends[of.isolation].first.get(key, 0)), 0)
            seen += 1
            if seen % SLICE == 0:
                await asyncio.sleep(0)
        bounds[group_id] = bound
    return bounds


async def _with_lag(
    client: KafkaClient, row: GroupRow, of: CommittedOffsets, ends: Mapping[int, PartitionEnds], budget: CountingBudget
) -> GroupRow:
    """Add the lag to the row of a group. Records are counted as far as the budget allows."""
    if not of.offsets:
        return row
    states = await share_states(client, row.id, of, ends[of.isolation].last)
    lags = await _lags(client, of, ends[of.isolation], budget, states)
    records, is_exact, behind_ms = total_lag(lags)
    return replace(row, partitions=len(lags), records=records, is_exact=is_exact, behind_ms=behind_ms)


async def _lags(
    client: KafkaClient, of: CommittedOffsets, ends: PartitionEnds, budget: CountingBudget, states: ShareStates
) -> list[PartitionLag]:
    return await partition_lags(client, of.offsets, ends, budget, of.isolation, finished_offsets(states))


def total_lag(lags: Iterable[PartitionLag]) -> tuple[int | None, bool, int | None]:
    """Sum up the lags of partitions. Returns the number of unread records (None if no lag is known), whether it is
    exact, and the longest lag in time (ms).
    """
    known = [each for each in lags if each.records is not None]
    return (
        sum(each.records or 0 for each in known) if known else None,
        all(each.is_exact for each in known),
        max((each.behind_ms for each in known if each.behind_ms is not None), default=None),
    )


def lag_increase(points: Sequence[int | None]) -> int | None:
    """The last known point minus the first one; None if fewer than two points are known."""
    known = [each for each in points if each is not None]
    return known[-1] - known[0] if len(known) > 1 else None


# One group


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupDescription:
    id: str
    kind: str
    state: str
    coordinator: int
    details: dict[str, str]
    members: list[MemberRow]
    is_read_committed: bool
    """Whether the members receive only records of committed transactions."""
    partitions: list[PartitionLag]
    records: int | None
    is_exact: bool
    behind_ms: int | None
    reasons: list[Finding]
    """Explanations why the group lags, rebalances or skips records."""
    history: list[int | None]
    """The lag in records in the last hour: one point each minute, the oldest first, None if it was not known."""
    outline: str
    """The lag of the last hour as the points of an SVG polyline."""
    errors: list[str]


async def describe_group(visit: PageRequest) -> GroupDescription:
    group_id = visit.variables["id"]
    visit.require(AclOperation.DESCRIBE, ResourceKind.GROUP, group_id)
    coordinator = await coordinator_of(visit.client, group_id)
    group = await group_of(visit.client, group_id, coordinator)
    described = await describe_members(visit.client, group_id, group.kind, coordinator)
    offsets = (await committed_offsets(visit.client, [group]))[group_id]
    for key in described.assigned:
        offsets.offsets.setdefault(key, None)
    ends = await ends_of(visit.client, offsets.offsets, offsets.isolation)
    states = await share_states(visit.client, group_id, offsets, ends.last)
    lags = await _lags(visit.client, offsets, ends, CountingBudget(*GROUP_BUDGET), states)
    lags = [replace(each, metadata=offsets.metadata.get((each.topic, each.partition), "")) for each in lags]
    records, is_exact, behind_ms = total_lag(lags)
    told = (group_id, group.kind, group.state)
    found = await explain_lag(visit.client, told, coordinator, described.members, lags, ends, states)
    hour = (await lags_of_last_hour(visit.client, {group_id: coordinator})).get(group_id, [])
    return GroupDescription(
        group_id,
        group.kind,
        group.state,
        coordinator,
        described.details,
        described.members,
        offsets.isolation == READ_COMMITTED,
        lags,
        records,
        is_exact,
        behind_ms,
        found,
        hour,
        sparkline_points(hour),
        [each for each in (described.error, offsets.error) if each],
    )


PAGES: Final = (
    Page("/groups", "groups.html", describe_groups),
    Page("/groups/{id}", "group.html", describe_group),
)
