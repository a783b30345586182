"""DescribeTopicPartitions (API key 75, version 0; KIP-966): topics with their eligible leader replicas, in pages.

Topics come in the order of their names; a page holds a bounded number of partitions, and its cursor names the next
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.requests.authorization.visibility import TOPIC_OPERATIONS, permitted
from moldau.kraft.image.topics import PartitionRegistration, Topic
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import ResourceKind

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    topics = services.cluster.image.topics
    names = {topic.name for topic in request.topics} or set(topics.ids)
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)):
        return DescribeTopicPartitionsResponse(topics=[_refused(name) for name in sorted(names)])
    first_name = cursor.topic_name if cursor is not None else ""
    left = max(min(request.response_partition_limit, services.config.integer("max.request.partition.size.limit")), 1)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(name for name in names if name >= first_name):
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.by_name(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        indexes = [index for index in sorted(topic.partitions) if index >= start]
        response.topics.append(_described(services, topic, indexes[:left]))
        if len(indexes) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    if not context.access.is_unrestricted:
        for each in response.topics:
            each.topic_authorized_operations = permitted(
                context.access, TOPIC_OPERATIONS, ResourceKind.TOPIC, each.name or ""
            )
    return response


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=ZERO_UUID)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    # DIVERGES: an empty name makes Apache Kafka fail the whole request; here it is invalid like any other.
    is_valid = refusal_of_name(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(services: Services, topic: Topic, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(services, index, topic.partitions[index]) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    services: Services, index: int, partition: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=partition.offline_replicas(services.cluster.image.cluster),
    )
