"""Metadata: who is in the cluster, and where each partition of the topics asked for is led."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from broker.internal_topics import INTERNAL_TOPICS
from kraft.controller.new_partitions import NEW_PARTITIONS_MAX
from kraft.image.topics import NO_LEADER, Partition, Topic
from kraft.topic_names import refusal_of_name
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.connection import RequestContext
    from broker.node import Broker

NULL_MEANS_ALL_VERSION: Final = 1
"""Version 0 has no null: there the empty list asks for all topics."""
ASKED_BY_ID_VERSION: Final = 12
"""The ids that versions 10 and 11 know may only be told, not asked by."""


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if context.version < ASKED_BY_ID_VERSION and any(_is_by_id(wish) for wish in request.topics or ()):
        return _refused(request)
    asks_for_all = request.topics is None or (not request.topics and context.version < NULL_MEANS_ALL_VERSION)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    wanted = list(_wanted(broker, request, asks_for_all))
    may_create = request.allow_auto_topic_creation and _may_create_missing(broker, wanted)
    topics = [
        _described(broker, context, topic, operations)
        if isinstance(topic, Topic)
        else _missing(broker, topic, may_create)
        for topic in wanted
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.live_nodes(context.listener.name)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.any_live_node_id(),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _is_by_id(wish: MetadataRequestTopic) -> bool:
    return wish.name is None or wish.topic_id != ZERO_UUID


def _refused(request: MetadataRequest) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=wish.name or "", topic_id=wish.topic_id)
        for wish in request.topics or ()
    ]
    return MetadataResponse(topics=topics)


def _wanted(broker: Broker, request: MetadataRequest, asks_for_all: bool) -> Iterable[Topic | MetadataRequestTopic]:
    """The topics asked for, each once; where one is not there, what was asked."""
    topics = broker.image.topics
    if asks_for_all:
        return topics.by_id.values()
    found: dict[str | bytes, Topic | MetadataRequestTopic] = {}
    for wish in request.topics or ():
        # DIVERGES: Apache Kafka fails the whole request on a topic with neither name nor id; here it is unknown.
        if _is_by_id(wish):
            found[wish.topic_id] = topics.by_id.get(wish.topic_id) or wish
        else:
            name = wish.name or ""
            found[name] = topics.by_name(name) or wish
    return found.values()


def _may_create_missing(broker: Broker, wanted: Iterable[Topic | MetadataRequestTopic]) -> bool:
    """Whether all that is missing may be created by one request: all of it or none, as in Apache Kafka."""
    if not broker.auto_creates_topics:
        return False
    missing_count = sum(type(topic) is not Topic for topic in wanted)
    return missing_count * broker.settings.config.integer("num.partitions") <= NEW_PARTITIONS_MAX


def _described(broker: Broker, context: RequestContext, topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(broker, context, index, partition) for index, partition in sorted(topic.partitions.items())
        ],
        topic_authorized_operations=operations,
    )


def _partition(broker: Broker, context: RequestContext, index: int, partition: Partition) -> MetadataResponsePartition:
    brokers = broker.image.cluster.brokers
    error = ErrorCode.NONE
    if partition.leader == NO_LEADER:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif context.listener.name not in brokers[partition.leader].endpoints:
        error = ErrorCode.LISTENER_NOT_FOUND
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=partition.leader if error is ErrorCode.NONE else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=partition.offline_replicas(broker.image.cluster),
    )


def _missing(broker: Broker, wish: MetadataRequestTopic, may_create: bool) -> MetadataResponseTopic:
    if _is_by_id(wish) or wish.name is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wish.topic_id)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refusal_of_name(wish.name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif may_create:
        # The answer does not wait for the topic: clients ask again, as they do of Apache Kafka.
        broker.create_topic(wish.name)
    return MetadataResponseTopic(
        error_code=error, name=wish.name, topic_id=ZERO_UUID, is_internal=wish.name in INTERNAL_TOPICS
    )
