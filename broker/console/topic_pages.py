"""The pages about topics: the list, and one topic with its partitions and settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moldau.broker.console.cluster_pages import TOPIC, SettingRow, settings_of
from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.page import ROWS_MAX, Page, Refusal, Rows, Visit, choose, gather
from moldau.kraft.image.topics import NO_LEADER, Topic
from moldau.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
Partition = tuple[str, int]
INTERNAL: Final = "__"


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    partitions: int
    replicas: int
    """The most replicas of a partition."""
    offline: int
    under_replicated: int
    bytes: int | None
    """Of all replicas; None where no broker has told it."""
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicList:
    q: str
    internal: str
    topics: Rows[TopicRow]


async def describe_topics(visit: Visit) -> TopicList:
    image = visit.ports.cluster.image.topics
    internal = visit.choice("internal", ("yes", "no"))

    def is_shown(name: str) -> bool:
        return not (internal == "no" and name.startswith(INTERNAL)) and visit.may(
            AclOperation.DESCRIBE, ResourceKind.TOPIC, name
        )

    names, total, next_page = await choose(image.ids, visit, is_shown)
    topics = [topic for name in names if (topic := image.by_name(name)) is not None]
    sizes = await replica_sizes(visit, topics)
    rows = []
    for topic in topics:
        partitions = topic.partitions.values()
        known = [size for (name, _, _), size in sizes.items() if name == topic.name]
        rows.append(
            TopicRow(
                topic.name,
                len(partitions),
                max((len(each.replicas) for each in partitions), default=0),
                sum(each.leader == NO_LEADER for each in partitions),
                sum(len(each.isr) < len(each.replicas) for each in partitions),
                sum(known) if known else None,
                topic.name.startswith(INTERNAL),
            )
        )
    return TopicList(visit.field("q"), internal, Rows(rows, total, next_page))


async def replica_sizes(visit: Visit, topics: Iterable[Topic]) -> dict[tuple[str, int, int], int]:
    """The sizes (bytes) of replicas by topic, partition and broker, as far as brokers tell them."""
    if not visit.may(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return {}
    wanted: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for index, partition in topic.partitions.items():
            for replica in partition.replicas:
                wanted.setdefault(replica, {}).setdefault(topic.name, []).append(index)
    found: dict[tuple[str, int, int], int] = {}

    async def ask(broker_id: int) -> None:
        named = [DescribableLogDirTopic(topic=name, partitions=each) for name, each in wanted[broker_id].items()]
        try:
            answer = await visit.client.ask(
                DescribeLogDirsRequest(topics=named), DescribeLogDirsResponse, broker_id=broker_id
            )
        except Unanswered:
            return
        for directory in answer.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        found[topic.name, partition.partition_index, broker_id] = partition.partition_size

    await gather(*(ask(broker_id) for broker_id in wanted if visit.ports.cluster.is_alive(broker_id)))
    return found


async def offsets_of(
    client: KafkaClient, partitions: Iterable[Partition], timestamp: int, isolation_level: int = READ_UNCOMMITTED
) -> dict[Partition, int]:
    """The offsets for a timestamp (ms, or one of those that stand for an end of the log), from the leaders; partitions
    whose leader does not tell are left out.
    """
    topics = client.ports.cluster.image.topics
    by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for name, index in partitions:
        partition = topics.partition(name, index)
        if partition is not None and partition.leader != NO_LEADER:
            wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            by_leader.setdefault(partition.leader, {}).setdefault(name, []).append(wanted)
    found: dict[Partition, int] = {}

    async def ask(leader: int) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in by_leader[leader].items()],
            timeout_ms=1_000,
        )
        try:
            answer = await client.ask(request, ListOffsetsResponse, broker_id=leader)
        except Unanswered:
            return
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[topic.name, each.partition_index] = each.offset

    await gather(*(ask(leader) for leader in by_leader))
    return found


@dataclass(frozen=True, slots=True)
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
    """Of the leader's replica."""
    state: str


@dataclass(frozen=True, slots=True)
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


async def describe_topic(visit: Visit) -> TopicDescription:
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    first = visit.whole_number("from", 0)
    indexes = [index for index in range(first, first + ROWS_MAX) if index in topic.partitions]
    keys = [(name, index) for index in indexes]
    shown = Topic(name, topic.id, {index: topic.partitions[index] for index in indexes})
    sizes = await replica_sizes(visit, [shown])
    starts, stable, ends = await gather(
        offsets_of(visit.client, keys, EARLIEST),
        offsets_of(visit.client, keys, LATEST, READ_COMMITTED),
        offsets_of(visit.client, keys, LATEST),
    )
    rows = []
    for index in indexes:
        partition, key = topic.partitions[index], (name, index)
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
                sizes.get((name, index, partition.leader)),
                "offline"
                if partition.leader == NO_LEADER
                else "under-replicated"
                if len(partition.isr) < len(partition.replicas)
                else "in sync",
            )
        )
    settings, error = await settings_of(visit, TOPIC, name)
    shows = visit.choice("shows", ("changed", "all"))
    has_more = first + ROWS_MAX in topic.partitions
    return TopicDescription(
        name,
        topic.id.hex(),
        visit.field("q"),
        Rows(rows, len(topic.partitions), visit.link(**{"from": first + ROWS_MAX}) if has_more else None),
        [each for each in settings if shows == "all" or not each.is_default],
        shows,
        error,
        sum(sizes.values()) if sizes else None,
        name.startswith(INTERNAL),
    )


def visible_topic(visit: Visit, name: str) -> Topic:
    """A topic that the user may describe. Raises `Refusal`, the same for a topic that does not exist."""
    topic = visit.ports.cluster.image.topics.by_name(name)
    if topic is None or not visit.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, name):
        raise Refusal(404, f"there is no topic {name}, or {visit.client.access.principal} may not describe it")
    return topic


PAGES: Final = (
    Page("/topics", "topics.html", describe_topics),
    Page("/topics/{name}", "topic.html", describe_topic),
)
