"""Rules of the APIs that name topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.requests.authorization.rule import (
    Answer,
    Need,
    change_response,
    cluster,
    divided,
    each_in,
    refusals_of,
    topic,
    topic_by_id,
    transactional_id,
    unless,
    with_field,
)
from moldau.broker.requests.unverified_batches import is_transactional
from moldau.kraft.topic_names import CLUSTER_METADATA_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from moldau.protocol.refusals import refused as refused_whole
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services
    from moldau.kraft.image.topics import TopicsImage
    from moldau.security.access import Access

FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CREATION_MESSAGE = "Authorization failed."
FAILED_MESSAGE = "Topic authorization failed."
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNKNOWN_MESSAGE = "This server does not host this topic-partition."
BY_ID_VERSION = 13
"""From this version of Produce on topics travel by id."""


# Produce


def produce(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """WRITE on each topic, and on the transactional id where any batch belongs to a transaction: every batch of a
    partition is examined (CVE-2018-17196). For an unknown topic id the answer is the usual error, because it reveals no
    topic.
    """
    assert isinstance(request, ProduceRequest)
    access = context.access
    if any(
        data.records and is_transactional(data.records) for each in request.topic_data for data in each.partition_data
    ):
        id_ = request.transactional_id
        if id_ is None or not transactional_id(AclOperation.WRITE, id_).is_met(access):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            refused_all: ProduceResponse = refused_whole(request, context.version, error)
            return _not_produced(context, request, refused_all.responses)
    allowed, denied = divided(services, context, request.topic_data, topic_by_id(AclOperation.WRITE, BY_ID_VERSION))
    if not denied:
        return answer(context, request)
    refusals = refusals_of(context, request, "topic_data", "responses", denied)
    if not allowed:
        return _not_produced(context, request, refusals)
    produced = answer(context, with_field(request, "topic_data", allowed))
    if produced is None:
        return _not_produced(context, request, refusals)

    def add(response: ProduceResponse) -> ProduceResponse:
        response.responses.extend(refusals)
        return response

    context.route.count_errors(FAILED for each in refusals for _ in each.partition_responses)
    return change_response(produced, add)


def _not_produced(
    context: RequestContext, request: ProduceRequest, refusals: list[TopicProduceResponse]
) -> ProduceResponse | None:
    context.route.count_errors(data.error_code for each in refusals for data in each.partition_responses)
    if request.acks == 0:
        context.connection.close("a produce with acks=0 is not allowed; closing is the only way to say so")
        return None
    return ProduceResponse(responses=refusals)


# Offsets and records

LIST_OFFSETS: Final = each_in("topics", topic, AclOperation.DESCRIBE)
DELETE_RECORDS: Final = each_in("topics", topic, AclOperation.DELETE)
OFFSET_FOR_LEADER_EPOCH: Final = unless(
    AclOperation.CLUSTER_ACTION, each_in("topics", topic, AclOperation.DESCRIBE, "topic")
)
"""Brokers ask with CLUSTER_ACTION."""
DESCRIBE_PRODUCERS: Final = each_in("topics", topic, AclOperation.READ)


def describe_topic_partitions(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each topic. A request for all topics gets the allowed ones."""
    assert isinstance(request, DescribeTopicPartitionsRequest)
    access = context.access
    if not request.topics:
        names = [
            name
            for name in services.cluster.image.topics.ids
            if topic(AclOperation.DESCRIBE, name).is_met_quietly(access)
        ]
        cursor = request.cursor
        asked = request
        if cursor is not None and cursor.partition_index >= 0 and cursor.topic_name not in names:
            # The topic at which the client goes on was deleted, or the client may not describe it any more.
            names = [name for name in names if name > cursor.topic_name]
            asked = with_field(request, "cursor", None)
        if not names:
            return DescribeTopicPartitionsResponse()
        return answer(context, with_field(asked, "topics", [DescribedTopic(name=name) for name in names]))
    allowed, denied = divided(services, context, request.topics, _described)
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


def _described(services: Services, context: RequestContext, element: DescribedTopic) -> Need:
    return topic(AclOperation.DESCRIBE, element.name)


# At the controller


def create_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """CREATE on the cluster, or on each topic. The response holds a topic's settings only with DESCRIBE_CONFIGS
    on it.
    """
    assert isinstance(request, CreateTopicsRequest)
    access = context.access
    allowed, refused = request.topics, set[str]()
    if not cluster(AclOperation.CREATE).is_met_quietly(access):
        # The controller refuses the topic of the metadata log to every client.
        names = dict.fromkeys(each.name for each in request.topics if each.name != CLUSTER_METADATA_TOPIC)
        refused = {name for name in names if not topic(AclOperation.CREATE, name).is_met(access)}
        allowed = [each for each in request.topics if each.name not in refused]

    def told(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for each in response.topics:
            if each.error_code == ErrorCode.NONE and not topic(AclOperation.DESCRIBE_CONFIGS, each.name).is_met_quietly(
                access
            ):
                each.topic_config_error_code = FAILED
                each.num_partitions = each.replication_factor = -1
                each.configs = []
        response.topics.extend(
            CreatableTopicResult(name=name, error_code=FAILED, error_message=CREATION_MESSAGE)
            for name in sorted(refused)
        )
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), told)


def delete_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DELETE on the cluster or on each topic, and DESCRIBE on each topic that is given by its name; the result of an id
    holds the name only with DESCRIBE. The controller refuses to every client what needs no permission: a topic named
    twice, or by name and id, an unknown id, and everything while deletion is disabled.
    """
    assert isinstance(request, DeleteTopicsRequest)
    access = context.access
    if not services.config.flag("delete.topic.enable") or cluster(AclOperation.DELETE).is_met_quietly(access):
        return answer(context, request)
    topics = services.cluster.image.topics
    counts = Counter(request.topic_names)
    counts.update(each.name for each in request.topics if each.name is not None and each.topic_id == ZERO_UUID)
    ids = Counter(each.topic_id for each in request.topics if each.name is None)
    refusals: list[DeletableTopicResult] = []

    def is_passed_on(name: str) -> bool:
        return counts[name] > 1 or _may_delete(access, topics, name, refusals)

    names = [name for name in request.topic_names if is_passed_on(name)]
    passed = []
    for each in request.topics:
        if each.name is not None:
            if each.topic_id != ZERO_UUID or is_passed_on(each.name):
                passed.append(each)
            continue
        known = topics.by_id.get(each.topic_id)
        if known is None or ids[each.topic_id] > 1:
            passed.append(each)
            continue
        if topic(AclOperation.DELETE, known.name).is_met(access):
            passed.append(each)
            continue
        shown = known.name if topic(AclOperation.DESCRIBE, known.name).is_met_quietly(access) else None
        refusals.append(
            DeletableTopicResult(name=shown, topic_id=each.topic_id, error_code=FAILED, error_message=FAILED_MESSAGE)
        )
    if not refusals:
        return answer(context, request)

    def add(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses.extend(refusals)
        return response

    asked = with_field(with_field(request, "topic_names", names), "topics", passed)
    return change_response(answer(context, asked), add)


def _may_delete(access: Access, topics: TopicsImage, name: str, refusals: list[DeletableTopicResult]) -> bool:
    """Whether the client may delete a topic that it names. A client that may describe a topic that does not exist is
    told so, with DELETE or without; it learns nothing about one that it may not describe.
    """
    if topic(AclOperation.DESCRIBE, name).is_met(access):
        if topics.by_name(name) is None:
            refusals.append(DeletableTopicResult(name=name, error_code=UNKNOWN, error_message=UNKNOWN_MESSAGE))
            return False
        if topic(AclOperation.DELETE, name).is_met(access):
            return True
    refusals.append(DeletableTopicResult(name=name, error_code=FAILED, error_message=FAILED_MESSAGE))
    return False


CREATE_PARTITIONS: Final = each_in("topics", topic, AclOperation.ALTER, results="results")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
