"""The pages about groups of every kind: the list with its lags, and one group with its members and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.console.group_members import MemberRow, describe_members
from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.lag import Budget, PartitionLag, ends_of, partition_lags
from moldau.broker.console.page import ROWS_MAX, Page, Refusal, Rows, Visit, choose, error_name, gather
from moldau.broker.console.topic_pages import READ_COMMITTED, READ_UNCOMMITTED, Partition
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.security.access import AclOperation, ResourceKind

SHARE: Final = "share"
KINDS: Final = ("", "classic", "consumer", "share", "streams")
BY_NAME_VERSION: Final = 9
"""The last version of OffsetFetch with the names of topics."""
SORTED_MAX: Final = 500
"""The most groups whose lags are compared for one page."""
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
    sort, kind = visit.choice("sort", ("lag", "name")), visit.choice("kind", KINDS)
    listed, errors = await list_groups(visit)
    found = {each.group_id: (each, broker_id) for each, broker_id in listed if kind in ("", each.group_type)}
    size = SORTED_MAX if sort == "lag" else ROWS_MAX
    names, total, next_page = await choose(found, visit, lambda name: True, size)
    rows = [_row(*found[name]) for name in names]
    if sort == "lag":
        bounds = await _with_lags(visit.client, rows, Budget(0, 0))
        rows = sorted(bounds, key=lambda each: (-(each.records or 0), each.id))[:ROWS_MAX]
    rows = await _with_lags(visit.client, rows, Budget(*LIST_BUDGET))
    if sort == "lag":
        rows.sort(key=lambda each: (-(each.records or 0), each.id))
    compared = len(names) if sort == "lag" and total > len(names) else 0
    return GroupList(visit.field("q"), kind, sort, Rows(rows, total, next_page), errors, compared)


def _row(group: ListedGroup, broker_id: int) -> GroupRow:
    return GroupRow(group.group_id, group.group_type, group.group_state, group.protocol_type, broker_id)


async def list_groups(visit: Visit) -> tuple[list[tuple[ListedGroup, int]], list[str]]:
    """The groups that the user may describe, each with its coordinator; and what could not be listed."""
    found: list[tuple[ListedGroup, int]] = []
    errors: list[str] = []

    async def ask(broker_id: int) -> None:
        try:
            answer = await visit.client.ask(ListGroupsRequest(), ListGroupsResponse, broker_id=broker_id)
        except Unanswered as unanswered:
            errors.append(str(unanswered))
            return
        if answer.error_code:
            errors.append(f"broker {broker_id}: {error_name(answer.error_code)}")
        found.extend((each, broker_id) for each in answer.groups)

    brokers = visit.ports.cluster.image.cluster.brokers
    await gather(*(ask(broker_id) for broker_id in sorted(brokers) if not brokers[broker_id].fenced))
    return found, errors


async def _with_lags(client: KafkaClient, rows: Sequence[GroupRow], budget: Budget) -> list[GroupRow]:
    """The rows with their lags, in their order. Records are counted as far as the budget allows."""
    offsets = await committed_offsets(client, rows)
    ends = {}
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        keys = {key: None for each in offsets.values() if each.isolation == isolation for key in each.offsets}
        ends[isolation] = await ends_of(client, keys, isolation)
    done = []
    for row in rows:
        of = offsets[row.id]
        lags = await partition_lags(client, of.offsets, ends[of.isolation], budget, of.isolation)
        lags = [without_acknowledged(each, of.reported.get((each.topic, each.partition))) for each in lags]
        known = [each.records for each in lags if each.records is not None]
        behind = [each.behind_ms for each in lags if each.behind_ms is not None]
        done.append(
            replace(
                row,
                partitions=len(lags),
                records=sum(known) if known else None,
                is_exact=all(each.is_exact for each in lags if each.records is not None),
                behind_ms=max(behind, default=None),
            )
        )
    return done


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
        try:
            await (_share_offsets if is_share else _consumer_offsets)(client, coordinator, ids, found)
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
    errors: list[str]


async def describe_group(visit: Visit) -> GroupDescription:
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
    known = [each.records for each in lags if each.records is not None]
    behind = [each.behind_ms for each in lags if each.behind_ms is not None]
    return GroupDescription(
        group_id,
        row.kind,
        row.state,
        coordinator,
        described.details,
        described.members,
        lags,
        sum(known) if known else None,
        all(each.is_exact for each in lags if each.records is not None),
        max(behind, default=None),
        sum((each.topic, each.partition) not in described.assigned for each in lags),
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
