"""DescribeTopicPartitions (API key 75, version 0; KIP-966): topics with their eligible leader replicas, in pages.

Topics are sorted by name. A page has a limited number of partitions, and its cursor names the next one. The client gets
the topics that it may describe.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import one_pass
from moldau.broker.apis.needs import TOPIC_OPERATIONS, handler_asks, on_topic, permitted_operations
from moldau.broker.apis.parts import Answering, consume_elements, sorted_in_slices
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.network.route import RequestContext
from moldau.kraft.image.cluster import ClusterImage
from moldau.kraft.image.topics import PartitionRegistration
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
from moldau.security.access import AclOperation, ResourceKind


def handle(services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest) -> object:
    return services.long_requests.answer(context, _page(services, context, request))


def _page(services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest) -> Answering:
    """Describe a page of topics. Yields for each topic and each partition, so that other tasks run."""
    access, image, cursor, named = context.access, services.cluster.image, request.cursor, request.topics
    response, denied, asks_for_all = DescribeTopicPartitionsResponse(), [], not named
    if cursor is not None:
        is_found = asks_for_all
        for each in named:
            yield
            is_found |= each.name == cursor.topic_name
        if not is_found or cursor.partition_index < 0:
            for each in consume_elements(named):
                yield
                response.topics.append(_described(each.name, ErrorCode.INVALID_REQUEST))
            return response
    asked = image.topics.ids if asks_for_all else (each.name for each in consume_elements(named))
    names = yield from sorted_in_slices(asked, "" if cursor is None else cursor.topic_name)
    left = max(min(request.response_partition_limit, services.config.integer("max.request.partition.size.limit")), 1)
    for name, _ in groupby(names):
        yield
        need = on_topic(AclOperation.DESCRIBE, name)
        if not (need.is_met_quietly(access) if asks_for_all else need.is_met(access)):
            if not asks_for_all:
                denied.append(_described(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name(name)
        described = _unknown(name) if topic is None else _described(name)
        described.is_internal = name in INTERNAL_TOPICS
        described.topic_authorized_operations = permitted_operations(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, name)
        response.topics.append(described)
        if topic is None:
            continue
        described.topic_id = topic.id
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        for index in sorted(index for index in topic.partitions if index >= start):
            if left == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=index)
                break
            described.partitions.append(_partition(image.cluster, index, topic.partitions[index]))
            left -= 1
            yield
        if response.next_cursor is not None:
            break
    response.topics.extend(denied)
    return response


def _described(name: str, error: ErrorCode = ErrorCode.NONE) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, topic_id=ZERO_UUID)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    # DIVERGES: an empty name makes Apache Kafka fail the whole request; here it is invalid like any other.
    is_valid = refusal_of_name(name) is None
    return _described(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _partition(
    cluster: ClusterImage, index: int, partition: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=partition.offline_replicas(cluster),
    )


API: Final = Api(
    DescribeTopicPartitionsRequest,
    broker=handle,
    needs=handler_asks,
    lists=[one_pass("the names are looked at in slices", "topics")],
)
