"""The pages about groups of every kind: the list with its lags, and one group with its members and offsets."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.console.group_members import MemberRow, describe_members
from moldau.broker.console.kafka_client import ConsolePorts, KafkaClient, Unanswered
from moldau.broker.console.lag import Budget, Ends, PartitionLag, ends_of, partition_lags
from moldau.broker.console.lag_history import GROUPS_MAX, PERIOD_MS, LagHistory, outline
from moldau.broker.console.page import ROWS_MAX, SLICE, Page, Refusal, Rows, Visit, choose, error_name, gather
from moldau.broker.console.partitions import READ_COMMITTED, READ_UNCOMMITTED, Partition
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.security.access import AclOperation, ResourceKind, Unrestricted

log = logging.getLogger("moldau.console")
SHARE: Final = "share"
KINDS: Final = ("", "classic", "consumer", "share", "streams")
BY_NAME_VERSION: Final = 9
"""The last version of OffsetFetch with the names of topics."""
SORTED_MAX: Final = 500
"""The most groups whose lags are compared for one page."""
OUTLINE: Final = (600, 80)
"""Width and height of the picture of the last hour."""
GROUPS_ASKED_MAX: Final = 16
"""The most groups of one request, whose offsets a coordinator looks up in one step."""
LIST_BUDGET: Final = (1 << 22, 1 << 17)
GROUP_BUDGET: Final = (1 << 24, 1 << 21)
"""Bytes that are read in order to count records: for the whole page, for a partition."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    id: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int
    partitions: int = 0
    records: int | None = None
    """The lag of all partitions in records; None where no offset is committed."""
    is_exact: bool = True
    behind_ms: int | None = None
    """That of the partition that is furthest behind."""
    trend: int | None = None
    """How many records the lag has grown by in the last hour, or since it is known; None where there is one point."""


@dataclass(frozen=True, slots=True)
class GroupList:
    q: str
    kind: str
    sort: str
    groups: Rows[GroupRow]
    errors: list[str]
    compared: int
    """The groups whose lags were compared, where that is not all."""


async def describe_groups(visit: Visit) -> GroupList:
    watch(visit)
    sort, kind = visit.choice("sort", ("lag", "name")), visit.choice("kind", KINDS)
    listed, errors = await list_groups(visit.client)
    found = {each.group_id: (each, broker_id) for each, broker_id in listed if kind in ("", each.group_type)}
    size = SORTED_MAX if sort == "lag" else ROWS_MAX
    names, total, next_page = await choose(found, visit, lambda name: True, size)
    rows = [_row(*found[name]) for name in names]
    offsets = await committed_offsets(visit.client, rows)
    ends = await _ends(visit.client, offsets.values())
    if sort == "lag":
        bounds = await upper_bounds(offsets, ends)
        rows = heapq.nsmallest(ROWS_MAX, rows, key=lambda each: (-bounds[each.id], each.id))
    budget = Budget(*LIST_BUDGET)
    rows = [await _with_lag(visit.client, row, offsets[row.id], ends, budget) for row in rows]
    if sort == "lag":
        rows.sort(key=lambda each: (-(each.records or 0), each.id))
    if sees_topics(visit):
        rows = [replace(row, trend=growth(visit.kept.history.of(row.id))) for row in rows]
    compared = len(names) if sort == "lag" and total > len(names) else 0
    return GroupList(visit.field("q"), kind, sort, Rows(rows, total, next_page), errors, compared)


def _row(group: ListedGroup, broker_id: int) -> GroupRow:
    return GroupRow(group.group_id, group.group_type, group.group_state, group.protocol_type, broker_id)


async def list_groups(client: KafkaClient) -> tuple[list[tuple[ListedGroup, int]], list[str]]:
    """The groups that the user may describe, each with its coordinator; and what could not be listed."""
    found: list[tuple[ListedGroup, int]] = []
    errors: list[str] = []

    async def ask(broker_id: int) -> None:
        try:
            answer = await client.ask(ListGroupsRequest(), ListGroupsResponse, broker_id=broker_id)
        except Unanswered as unanswered:
            errors.append(str(unanswered))
            return
        if answer.error_code:
            errors.append(f"broker {broker_id}: {error_name(answer.error_code)}")
        found.extend((each, broker_id) for each in answer.groups)

    brokers = client.ports.cluster.image.cluster.brokers
    await gather(*(ask(broker_id) for broker_id in sorted(brokers) if not brokers[broker_id].fenced))
    return found, errors


async def _ends(client: KafkaClient, offsets: Iterable[CommittedOffsets]) -> dict[int, Ends]:
    """The ends of all partitions in which groups have offsets, by isolation level."""
    keys: dict[int, dict[Partition, None]] = {READ_UNCOMMITTED: {}, READ_COMMITTED: {}}
    for each in offsets:
        keys[each.isolation].update(dict.fromkeys(each.offsets))
    return {isolation: await ends_of(client, found, isolation) for isolation, found in keys.items() if found}


async def upper_bounds(offsets: Mapping[str, CommittedOffsets], ends: Mapping[int, Ends]) -> dict[str, int]:
    """The differences of the offsets of each group, summed up, in slices: what sorts a list of many groups."""
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
    client: KafkaClient, row: GroupRow, of: CommittedOffsets, ends: Mapping[int, Ends], budget: Budget
) -> GroupRow:
    """The row with its lag. Records are counted as far as the budget allows."""
    if not of.offsets:
        return row
    lags = await partition_lags(client, of.offsets, ends[of.isolation], budget, of.isolation)
    lags = [without_acknowledged(each, of.reported.get((each.topic, each.partition))) for each in lags]
    records, is_exact, behind_ms = total_lag(lags)
    return replace(row, partitions=len(lags), records=records, is_exact=is_exact, behind_ms=behind_ms)


def total_lag(lags: Iterable[PartitionLag]) -> tuple[int | None, bool, int | None]:
    """The records of all partitions, whether they were counted, and the lag in time (ms) of the one furthest behind."""
    known = [each for each in lags if each.records is not None]
    return (
        sum(each.records or 0 for each in known) if known else None,
        all(each.is_exact for each in known),
        max((each.behind_ms for each in known if each.behind_ms is not None), default=None),
    )


@dataclass(slots=True)
class CommittedOffsets:
    """The offsets of one group: committed ones, or the start offsets of a share group."""

    offsets: dict[Partition, int | None] = field(default_factory=dict)
    metadata: dict[Partition, str] = field(default_factory=dict)
    reported: dict[Partition, int] = field(default_factory=dict)
    """The lags in offsets of a share group, as its coordinator tells them: acknowledged records are left out."""
    isolation: int = READ_COMMITTED
    error: str = ""


async def committed_offsets(client: KafkaClient, rows: Iterable[GroupRow]) -> dict[str, CommittedOffsets]:
    """The offsets of groups by their ids, of the topics that the user may describe."""
    found: dict[str, CommittedOffsets] = {}
    by_coordinator: dict[tuple[int, bool], list[str]] = {}
    for row in rows:
        found[row.id] = CommittedOffsets()
        by_coordinator.setdefault((row.coordinator, row.kind == SHARE), []).append(row.id)

    async def ask(coordinator: int, is_share: bool) -> None:
        ids = by_coordinator[coordinator, is_share]
        read = _share_offsets if is_share else _consumer_offsets
        try:
            for begin in range(0, len(ids), GROUPS_ASKED_MAX):
                await read(client, coordinator, ids[begin : begin + GROUPS_ASKED_MAX], found)
        except Unanswered as unanswered:
            for group_id in ids:
                found[group_id].error = str(unanswered)

    await gather(*(ask(*key) for key in by_coordinator))
    return found


async def _consumer_offsets(
    client: KafkaClient, coordinator: int, group_ids: list[str], found: dict[str, CommittedOffsets]
) -> None:
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    answer = await client.ask(
        OffsetFetchRequest(groups=groups), OffsetFetchResponse, broker_id=coordinator, version=BY_NAME_VERSION
    )
    for group in answer.groups:
        of = found[group.group_id]
        of.error = error_name(group.error_code)
        for topic in group.topics:
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                of.offsets[key] = each.committed_offset if each.committed_offset >= 0 else None
                of.metadata[key] = each.metadata or ""


async def _share_offsets(
    client: KafkaClient, coordinator: int, group_ids: list[str], found: dict[str, CommittedOffsets]
) -> None:
    allowed = [each for each in group_ids if client.may(AclOperation.DESCRIBE, ResourceKind.GROUP, each)]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None) for group_id in allowed]
    answer = await client.ask(
        DescribeShareGroupOffsetsRequest(groups=groups), DescribeShareGroupOffsetsResponse, broker_id=coordinator
    )
    for group in answer.groups:
        of = found[group.group_id]
        of.error, of.isolation = error_name(group.error_code), READ_UNCOMMITTED
        for topic in group.topics:
            if not client.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic.topic_name):
                continue
            for each in topic.partitions:
                of.offsets[topic.topic_name, each.partition_index] = (
                    each.start_offset if each.start_offset >= 0 else None
                )
                if each.lag >= 0:
                    of.reported[topic.topic_name, each.partition_index] = each.lag


def without_acknowledged(lag: PartitionLag, reported: int | None) -> PartitionLag:
    """The lag of a share partition without the records behind its start offset that are acknowledged. `reported` is the
    lag in offsets without them. Where the range has markers too, some of these may count as acknowledged, and the
    result is an upper bound.
    """
    if reported is None or lag.records is None or lag.committed is None or lag.end is None:
        return lag
    offsets = lag.end - lag.committed
    acknowledged = max(offsets - reported, 0)
    if not acknowledged:
        return lag
    gaps = max(offsets - lag.records, 0)
    records = min(lag.records, max(lag.records - acknowledged + gaps, 0))
    return replace(lag, records=records, is_exact=lag.is_exact and not gaps, behind_ms=None if records else 0)


# The last hour


def watch(visit: Visit) -> None:
    """Begin to take points of the lags, where no visitor has begun it before."""
    if visit.kept.history.visited(visit.ports.environment.monotonic_ms()):
        visit.ports.services.spawn(_sample(visit.ports, visit.kept.history), "lags of groups")


async def _sample(ports: ConsolePorts, history: LagHistory) -> None:
    while history.goes_on(ports.environment.monotonic_ms()):
        try:
            history.add(await _lags_now(KafkaClient(ports, Unrestricted(), "")))
        except Exception:  # A point that is missing must not stop the broker, as the failure of a task does.
            log.exception("the lags of groups cannot be found")
        await asyncio.sleep(PERIOD_MS / 1000)


async def _lags_now(client: KafkaClient) -> dict[str, int | None]:
    """The lag of each group in records, of some of them where there are very many."""
    rows = [_row(*each) for each in (await list_groups(client))[0]][:GROUPS_MAX]
    offsets = await committed_offsets(client, rows)
    ends = await _ends(client, offsets.values())
    budget = Budget(*LIST_BUDGET)
    lags = [await _with_lag(client, row, offsets[row.id], ends, budget) for row in rows]
    return {each.id: each.records for each in lags}


def sees_topics(visit: Visit) -> bool:
    """Whether the user may describe all topics: the points are sums over all of those that a group reads."""
    access = visit.client.access
    return access.is_unrestricted or bool(access.decision_for_all(AclOperation.DESCRIBE, ResourceKind.TOPIC))


def growth(points: Sequence[int | None]) -> int | None:
    """By how much the last point is above the first one."""
    known = [each for each in points if each is not None]
    return known[-1] - known[0] if len(known) > 1 else None


# One group


@dataclass(frozen=True, slots=True)
class GroupDescription:
    id: str
    kind: str
    state: str
    coordinator: int
    details: dict[str, str]
    members: list[MemberRow]
    partitions: list[PartitionLag]
    records: int | None
    is_exact: bool
    behind_ms: int | None
    without_members: int
    """Partitions with committed offsets that no member reads."""
    history: list[int | None]
    """The lag in records in the last hour, a point each minute, the oldest first; None where it was not known."""
    outline: str
    """The same as the points of an SVG polyline."""
    errors: list[str]


async def describe_group(visit: Visit) -> GroupDescription:
    watch(visit)
    group_id = visit.variables["id"]
    visit.require(AclOperation.DESCRIBE, ResourceKind.GROUP, group_id)
    coordinator = await coordinator_of(visit.client, group_id)
    row = await group_row(visit.client, group_id, coordinator)
    described = await describe_members(visit.client, group_id, row.kind, coordinator)
    offsets = (await committed_offsets(visit.client, [row]))[group_id]
    for key in described.assigned:
        offsets.offsets.setdefault(key, None)
    ends = await ends_of(visit.client, offsets.offsets, offsets.isolation)
    lags = await partition_lags(visit.client, offsets.offsets, ends, Budget(*GROUP_BUDGET), offsets.isolation)
    lags = [without_acknowledged(each, offsets.reported.get((each.topic, each.partition))) for each in lags]
    lags = [replace(each, metadata=offsets.metadata.get((each.topic, each.partition), "")) for each in lags]
    records, is_exact, behind_ms = total_lag(lags)
    history = visit.kept.history.of(group_id) if sees_topics(visit) else []
    return GroupDescription(
        group_id,
        row.kind,
        row.state,
        coordinator,
        described.details,
        described.members,
        lags,
        records,
        is_exact,
        behind_ms,
        sum((each.topic, each.partition) not in described.assigned for each in lags),
        history,
        outline(history, *OUTLINE),
        [each for each in (described.error, offsets.error) if each],
    )


async def group_row(client: KafkaClient, group_id: str, coordinator: int) -> GroupRow:
    """A group as its coordinator lists it. Raises `Refusal` and `Unanswered`."""
    listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, broker_id=coordinator)
    for each in listed.groups:
        if each.group_id == group_id:
            return _row(each, coordinator)
    raise Refusal(404, f"there is no group {group_id}")


async def coordinator_of(client: KafkaClient, group_id: str) -> int:
    """The broker that coordinates a group. Raises `Refusal`.

    Where the topic of the groups does not exist there are none, and asking for the coordinator would create it.
    """
    if client.ports.cluster.image.topics.by_name(GROUP_METADATA_TOPIC) is None:
        raise Refusal(404, f"there is no group {group_id}")
    answer = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), FindCoordinatorResponse)
    (found,) = answer.coordinators
    if found.error_code:
        raise Refusal(503, f"the coordinator of the group is not known: {error_name(found.error_code)}")
    return found.node_id


PAGES: Final = (
    Page("/groups", "groups.html", describe_groups),
    Page("/groups/{id}", "group.html", describe_group),
)
