"""DescribeTopicPartitions (API key 75, version 0; KIP-966): topics with their eligible leader replicas, in pages.

Topics are sorted by name. A page has a limited number of partitions, and its cursor names the next one.
"""

from __future__ import annotations

from collections.abc import Generator
from copy import copy
from itertools import groupby, islice
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import (
    TOPIC_OPERATIONS,
    Answer,
    Need,
    change_response,
    on_topic,
    permitted_operations,
    refusals_of,
    split_by_need,
    with_field,
)
from moldau.broker.apis.parts import SIZE, ListPath, Parts, Pause, RequestPart, sorted_in_slices
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.network.route import RequestContext
from moldau.kraft.image.topics import PartitionRegistration, Topic
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import AclOperation, ResourceKind


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
            each.topic_authorized_operations = permitted_operations(
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


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: DESCRIBE on each topic. A request for all topics gets the allowed ones."""
    assert isinstance(request, DescribeTopicPartitionsRequest)
    access = context.access
    if not request.topics:
        names = [
            name
            for name in services.cluster.image.topics.ids
            if on_topic(AclOperation.DESCRIBE, name).is_met_quietly(access)
        ]
        cursor = request.cursor
        asked = request
        if cursor is not None and cursor.partition_index >= 0 and cursor.topic_name not in names:
            # The topic at which the client goes on was deleted, or the client may not describe it any more.
            names = [name for name in names if name > cursor.topic_name]
            asked = with_field(request, "cursor", None)
        if not names:
            return DescribeTopicPartitionsResponse()
        return answer(context, with_field(asked, "topics", [TopicRequest(name=name) for name in names]))
    allowed, denied = split_by_need(services, context, request.topics, _need)
    if not denied:
        return answer(context, request)
    refusals: dict[str, DescribeTopicPartitionsResponseTopic] = {
        each.name: each for each in refusals_of(context, request, "topics", "topics", denied)
    }
    if not allowed:
        return DescribeTopicPartitionsResponse(topics=list(refusals.values()))

    def add(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        response.topics.extend(refusals.values())
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), add)


def _need(services: Services, context: RequestContext, element: TopicRequest) -> Need:
    return on_topic(AclOperation.DESCRIBE, element.name)


TOPIC_NAMES: Final = ListPath("topics", "topics")
PAGE_PARTITIONS_MAX: Final = 2_000
"""The most partitions in a page that is made in several parts: the default of max.request.partition.size.limit. A
client that allows more gets fewer."""


@dataclass(frozen=True, slots=True)
class TopicPages(Parts):
    """How a request for a page is cut into parts. It ends when its topics have as many partitions as it allows."""

    lists: tuple[ListPath, ...] = (TOPIC_NAMES,)
    open_max: int = 1

    def parts_of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        assert isinstance(request, DescribeTopicPartitionsRequest)
        cursor = request.cursor
        is_cursor_named = cursor is None or any(each.name == cursor.topic_name for each in request.topics)
        is_refused = cursor is not None and (cursor.partition_index < 0 or not is_cursor_named)
        first_name = "" if cursor is None or is_refused else cursor.topic_name
        names = yield from sorted_in_slices((each.name for each in request.topics), first_name)
        sorted_names = (name for name, _ in groupby(names))
        left = max(min(request.response_partition_limit, PAGE_PARTITIONS_MAX), 1)
        while names_of_part := list(islice(sorted_names, SIZE)):
            part = copy(request)
            part.cursor = cursor
            part.topics = [TopicRequest(name=name) for name in names_of_part]
            part.response_partition_limit = left
            response = yield RequestPart(part, TOPIC_NAMES, continues=False)
            if not is_refused:
                cursor = None
            assert isinstance(response, DescribeTopicPartitionsResponse)
            left -= sum(len(each.partitions) for each in response.topics)
            if response.next_cursor is not None:
                return
            if left <= 0:
                following = next(sorted_names, None)
                if following is not None:
                    response.next_cursor = Cursor(topic_name=following, partition_index=0)
                return


API: Final = Api(DescribeTopicPartitionsRequest, broker=handle, needs=acl_rule, lists=[TopicPages()])
