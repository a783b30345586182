"""Requests about topics and what is in them."""

from __future__ import annotations

from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_producers import DescribeProducersRequest
from moldau.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.record_builder import Record, build_batch
from tests.conformance.acl_requests.asked import (
    CREATED,
    DELETED,
    IDEMPOTENT_PRODUCER,
    TOPICS,
    TRANSACTION,
    UNKNOWN_PRODUCER,
    Asked,
    Ids,
    Requests,
    in_versions,
    made,
)

RECORDS = [Record(key=b"k", value=b"v", timestamp=1)]
PLAIN = build_batch(RECORDS)
TRANSACTIONAL = build_batch(
    RECORDS, is_transactional=True, producer_id=UNKNOWN_PRODUCER, producer_epoch=0, base_sequence=0
)
IDEMPOTENT, IDEMPOTENT_AS_TRANSACTIONAL = (
    build_batch(RECORDS, is_transactional=flag, producer_id=IDEMPOTENT_PRODUCER, producer_epoch=0, base_sequence=0)
    for flag in (False, True)
)


def requests(ids: Ids) -> Requests:
    yield from produces(ids)
    yield from fetches(ids)
    yield from offsets()
    yield from metadata(ids)
    yield from changes(ids)


def produces(ids: Ids) -> Requests:
    cases = (
        (range(3, 14), PLAIN, None),
        ((3, 9, 12, 13), TRANSACTIONAL, None),
        ((3, 9, 12, 13), TRANSACTIONAL, TRANSACTION),
        ((9, 9), IDEMPOTENT, None),
        ((3, 9, 12, 13), IDEMPOTENT_AS_TRANSACTIONAL, TRANSACTION),
    )
    for versions, batch, transaction in cases:
        for version in versions:
            data = [made(PartitionProduceData, index=0, records=batch)]
            topics = [made(TopicProduceData, name=name, topic_id=ids.of(name), partition_data=data) for name in TOPICS]
            wish = {"transactional_id": transaction, "acks": -1, "timeout_ms": 1000, "topic_data": topics}
            yield Asked(made(ProduceRequest, **wish), version)


def fetches(ids: Ids) -> Requests:
    """As a consumer, and as a follower."""
    part = made(FetchPartition, partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [made(FetchTopic, topic=name, topic_id=ids.of(name), partitions=[part]) for name in TOPICS]
    for replica_id in (-1, 1):
        state = made(ReplicaState, replica_id=replica_id, replica_epoch=-1)
        limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
        yield from in_versions(4, 17, FetchRequest, replica_id=replica_id, replica_state=state, topics=topics, **limits)


def offsets() -> Requests:
    last = [made(ListOffsetsPartition, partition_index=0, timestamp=-1)]
    listed = [made(ListOffsetsTopic, name=name, partitions=last) for name in TOPICS]
    yield from in_versions(1, 10, ListOffsetsRequest, replica_id=-1, topics=listed)
    epochs = [made(OffsetForLeaderPartition, partition=0, leader_epoch=0)]
    asked = [made(OffsetForLeaderTopic, topic=name, partitions=epochs) for name in TOPICS]
    yield from in_versions(2, 4, OffsetForLeaderEpochRequest, replica_id=-1, topics=asked)
    producers = [made(ProducersTopic, name=name, partition_indexes=[0]) for name in TOPICS]
    yield from in_versions(0, 0, DescribeProducersRequest, topics=producers)


def metadata(ids: Ids) -> Requests:
    """Of all topics, of those that are there, of those that are not, and by id."""
    for version in range(14):
        bits = {
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": 8 <= version <= 10,
        }

        def of(names: tuple[str, ...] | None, version: int = version, **fields: object) -> Asked:
            topics = None if names is None else [made(MetadataRequestTopic, name=name) for name in names]
            return Asked(made(MetadataRequest, topics=topics, **fields), version)

        yield of(None if version else (), **bits)
        yield of(CREATED, allow_auto_topic_creation=False, **bits)
        yield of(("none", "bad/name"), allow_auto_topic_creation=version < 4, **bits)
        if version >= 12:
            by_id = [made(MetadataRequestTopic, name=None, topic_id=ids.of(name)) for name in TOPICS]
            yield Asked(made(MetadataRequest, topics=by_id, **bits), version)
    described = [made(DescribedTopic, name=name) for name in TOPICS]
    yield from in_versions(0, 0, DescribeTopicPartitionsRequest, topics=described)
    yield from in_versions(0, 0, DescribeTopicPartitionsRequest, topics=[])


def topic_deletions(ids: Ids) -> Requests:
    """By name and by id, with each combination of rights; none of the topics may be deleted."""
    for names in (("hidden", "none", *DELETED), ("hidden", "hidden", "see", "see", "none", "none")):
        yield from in_versions(1, 5, DeleteTopicsRequest, topic_names=list(names), timeout_ms=3000)
        by_name = [made(DeleteTopicState, name=name) for name in names]
        yield from in_versions(6, 6, DeleteTopicsRequest, topics=by_name, timeout_ms=3000)
    for identified in ((*TOPICS, "see"), ("hidden", "hidden", "see", "see", "none", "none")):
        by_id = [made(DeleteTopicState, name=None, topic_id=ids.of(name)) for name in identified]
        yield from in_versions(6, 6, DeleteTopicsRequest, topics=by_id, timeout_ms=3000)
    unclear = [made(DeleteTopicState, name=name, topic_id=ids.of(name)) for name in ("hidden", "see", "see.not")]
    by_both = [made(DeleteTopicState, name="see"), made(DeleteTopicState, name=None, topic_id=ids.of("see"))]
    for states in ([*unclear, made(DeleteTopicState, name=None)], by_both):
        yield from in_versions(6, 6, DeleteTopicsRequest, topics=states, timeout_ms=3000)


def changes(ids: Ids) -> Requests:
    fresh = [made(CreatableTopic, name=name, num_partitions=1, replication_factor=1) for name in ("orders", "fresh")]
    yield from in_versions(2, 7, CreateTopicsRequest, topics=fresh, timeout_ms=3000, validate_only=True)
    metadata_log = [made(CreatableTopic, name="__cluster_metadata", num_partitions=1, replication_factor=1)]
    yield from in_versions(2, 7, CreateTopicsRequest, topics=metadata_log, timeout_ms=3000)
    yield from topic_deletions(ids)
    nothing = [made(DeleteRecordsPartition, partition_index=0, offset=0)]
    records = [made(DeleteRecordsTopic, name=name, partitions=nothing) for name in TOPICS]
    yield from in_versions(0, 2, DeleteRecordsRequest, topics=records, timeout_ms=1000)
    more = [made(CreatePartitionsTopic, name=name, count=3, assignments=None) for name in TOPICS]
    yield from in_versions(0, 3, CreatePartitionsRequest, topics=more, timeout_ms=1000, validate_only=True)
