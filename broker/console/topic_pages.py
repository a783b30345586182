"""The pages about topics: the list of topics, and one topic with its partitions and settings."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.broker.console.cluster_pages import TOPIC, SettingRow, settings_of
from moldau.broker.console.lag import ends_of
from moldau.broker.console.page import ROWS_MAX, SLICE, Page, PageRequest, Refusal, Rows, choose_names, gather_results
from moldau.broker.console.partitions import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    READ_COMMITTED,
    offsets_of,
    recent_offsets,
    replica_sizes,
)
from moldau.broker.console.topic_readers import TopicReaders, readers_of
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.topics import NO_LEADER, Topic
from moldau.security.access import AclOperation, ResourceKind
from moldau.storage.checkpoints.partition_metadata import uuid_text

INTERNAL: Final = "__"
POLICY: Final = "cleanup.policy"
SORTS: Final = ("name", "size", "records", "rate")
SORTED_MAX: Final = 1_000
"""The most topics that are compared to sort a list."""
TIERED: Final = "remote.storage.enable"
RATE_MS: Final = 60_000
"""The time (ms) over which rates are measured."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopicRow:
    name: str
    partitions: int
    replicas: int
    """The largest number of replicas of a partition."""
    offline: int
    under_replicated: int
    bytes: int | None
    """The size of all replicas; None if no broker has reported one."""
    offsets: int | None
    """The number of offsets from the log start offset to the end, over all partitions; None if a leader did not report
    them.
    """
    records_a_second: float | None
    """The records per second over the last `RATE_MS`, by the timestamps of the records, summed over the partitions
    whose leaders report offsets. None if no leader does.
    """
    policy: str
    """The value of cleanup.policy, such as delete or compact."""
    is_internal: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopicList:
    q: str
    internal: str
    sort: str
    topics: Rows[TopicRow]
    compared: int
    """The number of topics that were compared to sort the list; 0 if all were."""


async def describe_topics(visit: PageRequest) -> TopicList:
    image = visit.ports.cluster.image.topics
    internal = visit.choice("internal", ("yes", "no"))

    def is_shown(name: str) -> bool:
        return not (internal == "no" and name.startswith(INTERNAL)) and visit.may(
            AclOperation.DESCRIBE, ResourceKind.TOPIC, name
        )

    sort = visit.choice("sort", SORTS)
    names, total, next_page = await choose_names(
        image.ids, visit, is_shown, ROWS_MAX if sort == SORTS[0] else SORTED_MAX
    )
    topics = [topic for name in names if (topic := image.by_name(name)) is not None]
    rows = await _rows(visit, topics)
    compared = len(names) if sort != SORTS[0] and total > len(names) else 0
    if sort != SORTS[0]:
        skipped = visit.whole_number("skip", 0, most=SORTED_MAX)
        end = skipped + ROWS_MAX
        if end < len(rows):
            next_page = visit.link(skip=end)
        elif next_page is not None:
            next_page = visit.link(skip=None, after=names[-1])
        key = {"size": size_of, "records": offsets_in, "rate": rate_of}[sort]
        rows = heapq.nsmallest(end, rows, key=lambda each: (-key(each), each.name))[skipped:]
    return TopicList(visit.field("q"), internal, sort, Rows(rows, total, next_page), compared)


def size_of(row: TopicRow) -> int:
    return row.bytes or 0


def offsets_in(row: TopicRow) -> int:
    return row.offsets or 0


def rate_of(row: TopicRow) -> float:
    return row.records_a_second or 0


async def _rows(visit: PageRequest, topics: Sequence[Topic]) -> list[TopicRow]:
    sizes: dict[str, int] = {}
    for (name, _, _), size in (await replica_sizes(visit.client, topics)).items():
        sizes[name] = sizes.get(name, 0) + size
    all_keys = [(each.name, index) for each in topics for index in each.partitions]
    ends = await ends_of(visit.client, all_keys)
    since = visit.ports.environment.wall_ms() - RATE_MS
    recent = await recent_offsets(visit.client, all_keys, since)
    configs = visit.ports.cluster.image.configs
    default = visit.ports.services.settings.config.entries("log.cleanup.policy")
    rows = []
    for count, topic in enumerate(topics, 1):
        partitions = topic.partitions.values()
        keys = [(topic.name, index) for index in topic.partitions]
        is_known = all(key in ends.last and key in ends.first for key in keys)
        rows.append(
            TopicRow(
                topic.name,
                len(partitions),
                max((len(each.replicas) for each in partitions), default=0),
                sum(each.leader == NO_LEADER for each in partitions),
                sum(len(each.isr) < len(each.replicas) for each in partitions),
                sizes.get(topic.name),
                sum(ends.last[key] - ends.first[key] for key in keys) if is_known else None,
                sum_of_known(recent_rate(recent.get(key), ends.last.get(key)) for key in keys),
                configs.settings_of(ResourceType.TOPIC, topic.name).get(POLICY) or ",".join(default),
                topic.name.startswith(INTERNAL),
            )
        )
        if count % SLICE == 0:
            await asyncio.sleep(0)
    return rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionRow:
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]
    start_offset: int | None
    stable_offset: int | None
    """The last stable offset: the first offset of the oldest open transaction, or the high watermark."""
    high_watermark: int | None
    bytes: int | None
    """The size of the leader's replica."""
    records_a_second: float | None
    """The records per second over the last `RATE_MS`, by the timestamps of the records."""
    bytes_a_second: float | None
    """The bytes per second, estimated as `records_a_second` times the mean stored size of a record in the leader's
    log.
    """
    local_offset: int | None
    """The first offset in the local log of a tiered topic; None if the topic is not tiered."""
    tiered_offset: int | None
    """The last offset in remote storage; None if there is none."""
    state: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopicDescription:
    name: str
    id: str
    q: str
    partitions: Rows[PartitionRow]
    settings: list[SettingRow]
    shows: str
    settings_error: str
    bytes: int | None
    is_internal: bool
    is_tiered: bool
    records_a_second: float | None
    """The records per second of the partitions on this page."""
    bytes_a_second: float | None
    is_moving: bool
    """Whether the reassignment of a partition is in progress."""
    groups: TopicReaders
    """The groups that have an offset in the topic."""


async def describe_topic(visit: PageRequest) -> TopicDescription:
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    first = visit.whole_number("from", 0)
    indexes = [index for index in range(first, first + ROWS_MAX) if index in topic.partitions]
    keys = [(name, index) for index in indexes]
    shown = Topic(name, topic.id, {index: topic.partitions[index] for index in indexes})
    sizes = await replica_sizes(visit.client, [shown])
    settings, error = await settings_of(visit, TOPIC, name)
    is_tiered = any(each.name == TIERED and each.value == "true" for each in settings)
    since = visit.ports.environment.wall_ms() - RATE_MS
    starts, stable, ends, recent = await gather_results(
        offsets_of(visit.client, keys, EARLIEST),
        offsets_of(visit.client, keys, LATEST, READ_COMMITTED),
        offsets_of(visit.client, keys, LATEST),
        offsets_of(visit.client, keys, since),
    )
    tiers = keys if is_tiered else []
    local, tiered = await gather_results(
        offsets_of(visit.client, tiers, EARLIEST_LOCAL), offsets_of(visit.client, tiers, LATEST_TIERED)
    )
    rows = []
    for index in indexes:
        partition, key = topic.partitions[index], (name, index)
        size, records_a_second = sizes.get((name, index, partition.leader)), recent_rate(recent.get(key), ends.get(key))
        rows.append(
            PartitionRow(
                index,
                partition.leader,
                partition.leader_epoch,
                list(partition.replicas),
                list(partition.isr),
                list(partition.adding_replicas),
                list(partition.removing_replicas),
                starts.get(key),
                stable.get(key),
                ends.get(key),
                size,
                records_a_second,
                byte_rate(records_a_second, size, local.get(key, starts.get(key)), ends.get(key)),
                local.get(key),
                offset if (offset := tiered.get(key, -1)) >= 0 else None,
                "offline"
                if partition.leader == NO_LEADER
                else "under-replicated"
                if len(partition.isr) < len(partition.replicas)
                else "in sync",
            )
        )
    shows = visit.choice("shows", ("changed", "all"))
    has_more = first + ROWS_MAX in topic.partitions
    return TopicDescription(
        name,
        uuid_text(topic.id),
        visit.field("q"),
        Rows(rows, len(topic.partitions), visit.link(**{"from": first + ROWS_MAX}) if has_more else None),
        [each for each in settings if shows == "all" or not each.is_default],
        shows,
        error,
        sum(sizes.values()) if sizes else None,
        name.startswith(INTERNAL),
        is_tiered,
        sum_of_known(each.records_a_second for each in rows),
        sum_of_known(each.bytes_a_second for each in rows),
        any(each.adding_replicas or each.removing_replicas for each in topic.partitions.values()),
        await readers_of(visit.client, topic),
    )


def recent_rate(recent: int | None, end: int | None) -> float | None:
    """The records per second over the last `RATE_MS`. `recent` is the offset of the first record in that time, negative
    if there is none; `end` is the end of the log. None if one of the two is not known.
    """
    if recent is None or end is None:
        return None
    return 0.0 if recent < 0 else round(max(end - recent, 0) * 1000 / RATE_MS, 2)


def byte_rate(records_a_second: float | None, size: int | None, begin: int | None, end: int | None) -> float | None:
    """The bytes per second: the records per second times the mean bytes for an offset, which are the log's `size`
    divided by the number of offsets from `begin` to `end`. None if an argument is None.
    """
    if records_a_second is None or size is None or begin is None or end is None:
        return None
    return round(records_a_second * size / (end - begin), 2) if end > begin else 0.0


def sum_of_known(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None if no value is known."""
    known = [each for each in values if each is not None]
    return round(sum(known), 2) if known else None


def visible_topic(visit: PageRequest, name: str) -> Topic:
    """The topic with this name. Raises the same `Refusal` if it does not exist and if the user may not describe it."""
    topic = visit.ports.cluster.image.topics.by_name(name)
    if topic is None or not visit.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, name):
        raise Refusal(404, f"there is no topic {name}, or {visit.client.access.principal} may not describe it")
    return topic


PAGES: Final = (
    Page("/topics", "topics.html", describe_topics),
    Page("/topics/{name}", "topic.html", describe_topic),
)
