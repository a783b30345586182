"""Requests about consumer, share and Streams groups."""

from __future__ import annotations

from moldau.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from moldau.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from moldau.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.conformance.acl_requests.asked import CREATED, GROUP, TOPICS, Ids, Requests, in_versions, made

CONSUMERS, SHARERS, STREAMS = "consumers", "sharers", "streams"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def requests(ids: Ids) -> Requests:
    yield from consumer_groups()
    yield from share_groups(ids)
    yield from streams_groups()


def consumer_groups() -> Requests:
    joining = {"group_id": CONSUMERS, "member_id": MEMBER, "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    names = list(TOPICS)
    yield from in_versions(
        0, 1, ConsumerGroupHeartbeatRequest, subscribed_topic_names=names, topic_partitions=[], **joining
    )
    yield from in_versions(0, 1, ConsumerGroupDescribeRequest, group_ids=[CONSUMERS, GROUP, "none"])


def share_groups(ids: Ids) -> Requests:
    member = {"group_id": SHARERS, "member_id": MEMBER}
    yield from in_versions(
        1, 1, ShareGroupHeartbeatRequest, member_epoch=0, subscribed_topic_names=list(TOPICS), **member
    )
    yield from in_versions(1, 1, ShareGroupDescribeRequest, group_ids=[SHARERS, CONSUMERS, "none"])
    fetched = [
        made(FetchTopic, topic_id=ids.of(name), partitions=[made(FetchPartition, partition_index=0)])
        for name in CREATED[:2]
    ]
    limits = {"max_bytes": 1 << 20, "max_records": 10, "batch_size": 10}
    yield from in_versions(1, 2, ShareFetchRequest, share_session_epoch=0, topics=fetched, **limits, **member)
    batch = made(AcknowledgementBatch, first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = made(AcknowledgePartition, partition_index=0, acknowledgement_batches=[batch])
    told = [made(AcknowledgeTopic, topic_id=ids.of(name), partitions=[partition]) for name in TOPICS]
    yield from in_versions(1, 2, ShareAcknowledgeRequest, share_session_epoch=1, topics=told, **member)
    asked = [made(DescribeShareGroupOffsetsRequestTopic, topic_name=name, partitions=[0]) for name in TOPICS]
    groups = [made(DescribeShareGroupOffsetsRequestGroup, group_id=group, topics=asked) for group in (SHARERS, "none")]
    yield from in_versions(0, 1, DescribeShareGroupOffsetsRequest, groups=groups)
    moved = [made(AlterShareGroupOffsetsRequestPartition, partition_index=0, start_offset=0)]
    changed = [made(AlterShareGroupOffsetsRequestTopic, topic_name=name, partitions=moved) for name in TOPICS]
    yield from in_versions(0, 0, AlterShareGroupOffsetsRequest, group_id=SHARERS, topics=changed)
    yield from in_versions(0, 0, AlterShareGroupOffsetsRequest, group_id="offsets", topics=changed)
    dropped = [made(DeleteShareGroupOffsetsRequestTopic, topic_name=name) for name in TOPICS]
    for group in (SHARERS, "offsets"):
        yield from in_versions(0, 0, DeleteShareGroupOffsetsRequest, group_id=group, topics=dropped)


def streams_groups() -> Requests:
    part = made(Subtopology, subtopology_id="0", source_topics=list(TOPICS[:2]))
    joining = {"group_id": STREAMS, "member_id": MEMBER, "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    tasks: dict[str, object] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    yield from in_versions(
        0,
        0,
        StreamsGroupHeartbeatRequest,
        topology=made(Topology, epoch=0, subtopologies=[part]),
        process_id="p",
        client_tags=[],
        **tasks,
        **joining,
    )
    yield from in_versions(0, 0, StreamsGroupDescribeRequest, group_ids=[STREAMS, CONSUMERS, "none"])
