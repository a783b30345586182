"""Reads from brokers about partitions: offsets, sizes of replicas, producers.

partitions ──▶ this broker leads them: its replicas ──────────────────────────┐
          └──▶ other leaders: requests of at most `ASKED_MAX` partitions ─────┴──▶ what is known, by partition
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.page import SLICE, gather_results
from moldau.kraft.image.topics import NO_LEADER, Topic
from moldau.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind
from moldau.storage.log.log import Log

Partition = tuple[str, int]
EARLIEST: Final = -2
LATEST: Final = -1
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ASKED_MAX: Final = 250
"""The most partitions of one request to another broker, because its response is decoded in one step."""


async def ask_leaders(
    client: KafkaClient,
    partitions: Iterable[Partition],
    ask: Callable[[int, Mapping[str, list[int]]], Awaitable[None]],
) -> None:
    """Call `ask` for the leaders of partitions: with the node id of a leader, and the indexes of its partitions by
    topic. One call has at most `ASKED_MAX` partitions. A partition without a leader is left out. If `ask` raises
    `Unanswered`, no further call is made for that leader.
    """
    topics = client.ports.cluster.image.topics
    by_leader: dict[int, list[Partition]] = {}
    for count, key in enumerate(partitions, 1):
        partition = topics.partition(*key)
        if partition is not None and partition.leader != NO_LEADER:
            by_leader.setdefault(partition.leader, []).append(key)
        if count % SLICE == 0:
            await asyncio.sleep(0)

    async def ask_one(leader: int) -> None:
        for named in partition_pieces(by_leader[leader]):
            try:
                await ask(leader, named)
            except Unanswered:
                return

    await gather_results(*(ask_one(leader) for leader in by_leader))


def partition_pieces(keys: Sequence[Partition]) -> Iterator[dict[str, list[int]]]:
    """Split partitions into pieces of at most `ASKED_MAX`. Each piece has the partition indexes by topic."""
    for begin in range(0, len(keys), ASKED_MAX):
        named: dict[str, list[int]] = {}
        for name, index in keys[begin : begin + ASKED_MAX]:
            named.setdefault(name, []).append(index)
        yield named


async def offsets_of(
    client: KafkaClient, partitions: Iterable[Partition], timestamp: int, isolation_level: int = READ_UNCOMMITTED
) -> dict[Partition, int]:
    """The offset of each partition for a timestamp (ms, or a constant such as `LATEST`), from the leaders. A partition
    whose leader reports none is left out. The ends of logs that this broker leads are read locally, in slices.
    """
    found: dict[Partition, int] = {}
    others = list(partitions)
    if timestamp in (EARLIEST, LATEST):
        ends, others = await own_ends(client, others, isolation_level)
        found = {key: pair[timestamp == LATEST] for key, pair in ends.items()}

    async def ask(leader: int, named: Mapping[str, list[int]]) -> None:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
            )
            for name, indexes in named.items()
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics, timeout_ms=1_000)
        answer = await client.ask(request, ListOffsetsResponse, broker_id=leader)
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[topic.name, each.partition_index] = each.offset

    await ask_leaders(client, others, ask)
    return found


async def recent_offsets(client: KafkaClient, partitions: Iterable[Partition], since_ms: int) -> dict[Partition, int]:
    """The offset of the first record of each partition at or after `since_ms`; -1 if there is none. A partition whose
    leader does not report it is left out. Logs of this broker that only have older records are not searched.
    """
    find = client.ports.services.replicas.find
    found: dict[Partition, int] = {}
    others: list[Partition] = []
    for count, key in enumerate(partitions, 1):
        partition = find(key)
        is_idle = (
            partition is not None and partition.leadership is not None and has_no_record_since(partition.log, since_ms)
        )
        if is_idle and client.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, key[0]):
            found[key] = -1
        else:
            others.append(key)
        if count % SLICE == 0:
            await asyncio.sleep(0)
    return found | await offsets_of(client, others, since_ms)


def has_no_record_since(log: Log, since_ms: int) -> bool:
    """Whether a log is known to have no record at or after `since_ms`. The log is not read: False means that it may
    have such a record.
    """
    return log.log_start_offset == log.end_offset or 0 <= log.active.max_timestamp < since_ms


async def own_ends(
    client: KafkaClient, partitions: Iterable[Partition], isolation_level: int
) -> tuple[dict[Partition, tuple[int, int]], list[Partition]]:
    """The start and end offset of each partition that this broker leads, as ListOffsets would report them, and the list
    of the other partitions. A partition is in that list if it has another leader, if the user may not describe its
    topic, or if ListOffsets would refuse it.
    """
    find = client.ports.services.replicas.find
    found: dict[Partition, tuple[int, int]] = {}
    others: list[Partition] = []
    may_describe: dict[str, bool] = {}
    for count, key in enumerate(partitions, 1):
        if count % SLICE == 0:
            await asyncio.sleep(0)
        partition = find(key)
        may = may_describe.get(key[0])
        if may is None:
            may = may_describe[key[0]] = client.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, key[0])
        if partition is None or partition.leadership is None or not may:
            others.append(key)
            continue
        high_watermark = partition.high_watermark
        if high_watermark < partition.leadership.epoch_start_offset:
            others.append(key)
            continue
        last = partition.last_stable_offset if isolation_level == READ_COMMITTED else high_watermark
        found[key] = partition.log.log_start_offset, last
    return found, others


async def replica_sizes(client: KafkaClient, topics: Iterable[Topic]) -> dict[tuple[str, int, int], int]:
    """The size (bytes) of each replica, by topic, partition and broker. Replicas whose broker reports no size are left
    out.
    """
    if not client.may(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return {}
    by_broker: dict[int, list[Partition]] = {}
    for topic in topics:
        for index, partition in topic.partitions.items():
            for replica in partition.replicas:
                by_broker.setdefault(replica, []).append((topic.name, index))
    found: dict[tuple[str, int, int], int] = {}
    own_id = client.ports.config.node_id
    for count, key in enumerate(by_broker.pop(own_id, ()), 1):
        held = client.ports.services.replicas.get(*key)
        if held is not None:
            found[(*key, own_id)] = held.log.size
        if count % SLICE == 0:
            await asyncio.sleep(0)

    async def ask(broker_id: int) -> None:
        for named in partition_pieces(by_broker[broker_id]):
            request = DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=name, partitions=each) for name, each in named.items()]
            )
            try:
                answer = await client.ask(request, DescribeLogDirsResponse, broker_id=broker_id)
            except Unanswered:
                return
            for directory in answer.results:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        if not partition.is_future_key:
                            found[topic.name, partition.partition_index, broker_id] = partition.partition_size

    await gather_results(*(ask(broker_id) for broker_id in by_broker if client.ports.cluster.is_alive(broker_id)))
    return found


async def producers_of(client: KafkaClient, partitions: Iterable[Partition]) -> dict[Partition, list[ProducerState]]:
    """The active producers of each partition, from the leaders. A partition whose leader does not report them is left
    out.
    """
    found: dict[Partition, list[ProducerState]] = {}

    async def ask(leader: int, named: Mapping[str, list[int]]) -> None:
        topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in named.items()]
        answer = await client.ask(DescribeProducersRequest(topics=topics), DescribeProducersResponse, broker_id=leader)
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[topic.name, each.partition_index] = each.active_producers

    await ask_leaders(client, partitions, ask)
    return found
