"""Rules of the APIs that name topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.requests.authorization.rule import (
    Answer,
    ElementsRule,
    Rule,
    change_response,
    cluster,
    field_of,
    topic,
    transactional_id,
    with_field,
)
from moldau.broker.requests.unverified_batches import is_transactional
from moldau.kraft.topic_names import CLUSTER_METADATA_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_partitions import CreatePartitionsTopic, CreatePartitionsTopicResult
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from moldau.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.messages.describe_producers import PartitionResponse, TopicRequest, TopicResponse
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from moldau.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
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


def each_topic(
    operation: AclOperation,
    refuse: Callable[[object, ErrorCode], object],
    *,
    name: str = "name",
    results: str = "topics",
) -> Rule:
    """The operation is needed on each topic that the request names."""
    name_of = field_of(name)
    return ElementsRule("topics", results, lambda element: topic(operation, name_of(element)), refuse)


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
            return _not_produced(context, request, [_refused_produce(each, error) for each in request.topic_data])
    topics = services.cluster.image.topics
    allowed, refusals = [], []
    for each in request.topic_data:
        name: str | None = each.name
        if context.version >= BY_ID_VERSION:
            known = topics.by_id.get(each.topic_id)
            name = None if known is None else known.name
        if name is None or topic(AclOperation.WRITE, name).is_met(access):
            allowed.append(each)
        else:
            refusals.append(_refused_produce(each, FAILED))
    if not refusals:
        return answer(context, request)
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


def _refused_produce(each: TopicProduceData, error: ErrorCode) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=each.name,
        topic_id=each.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1) for data in each.partition_data
        ],
    )


def _not_produced(
    context: RequestContext, request: ProduceRequest, refusals: list[TopicProduceResponse]
) -> ProduceResponse | None:
    context.route.count_errors(data.error_code for each in refusals for data in each.partition_responses)
    if request.acks == 0:
        context.connection.close("a produce with acks=0 is not allowed; closing is the only way to say so")
        return None
    return ProduceResponse(responses=refusals)


# Offsets and records


def refused_offsets(element: object, error: ErrorCode) -> object:
    each = cast("ListOffsetsTopic", element)
    return ListOffsetsTopicResponse(
        name=each.name,
        partitions=[
            ListOffsetsPartitionResponse(partition_index=wish.partition_index, error_code=error)
            for wish in each.partitions
        ],
    )


LIST_OFFSETS: Final = each_topic(AclOperation.DESCRIBE, refused_offsets)


def refused_deletion(element: object, error: ErrorCode) -> object:
    each = cast("DeleteRecordsTopic", element)
    return DeleteRecordsTopicResult(
        name=each.name,
        partitions=[
            DeleteRecordsPartitionResult(partition_index=wish.partition_index, low_watermark=-1, error_code=error)
            for wish in each.partitions
        ],
    )


DELETE_RECORDS: Final = each_topic(AclOperation.DELETE, refused_deletion)


def refused_epochs(element: object, error: ErrorCode) -> object:
    each = cast("OffsetForLeaderTopic", element)
    return OffsetForLeaderTopicResult(
        topic=each.topic,
        partitions=[EpochEndOffset(partition=wish.partition, error_code=error) for wish in each.partitions],
    )


EPOCHS = each_topic(AclOperation.DESCRIBE, refused_epochs, name="topic")


def offset_for_leader_epoch(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """Brokers ask with CLUSTER_ACTION, consumers with DESCRIBE on each topic."""
    assert isinstance(request, OffsetForLeaderEpochRequest)
    if cluster(AclOperation.CLUSTER_ACTION).is_met_quietly(context.access):
        return answer(context, request)
    return EPOCHS(services, context, request, answer)


def refused_producers(element: object, error: ErrorCode) -> object:
    each = cast("TopicRequest", element)
    return TopicResponse(
        name=each.name,
        partitions=[
            PartitionResponse(partition_index=index, error_code=error, error_message=FAILED_MESSAGE)
            for index in each.partition_indexes
        ],
    )


DESCRIBE_PRODUCERS: Final = each_topic(AclOperation.READ, refused_producers)


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
    allowed = []
    refusals: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    for each in request.topics:
        if topic(AclOperation.DESCRIBE, each.name).is_met(access):
            allowed.append(each)
        else:
            refusals[each.name] = DescribeTopicPartitionsResponseTopic(
                error_code=FAILED, name=each.name, topic_id=ZERO_UUID
            )
    if not refusals:
        return answer(context, request)
    if not allowed:
        return DescribeTopicPartitionsResponse(topics=list(refusals.values()))

    def add(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        response.topics.extend(refusals.values())
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), add)


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


def refused_partitions(element: object, error: ErrorCode) -> object:
    each = cast("CreatePartitionsTopic", element)
    return CreatePartitionsTopicResult(name=each.name, error_code=error, error_message=None)


CREATE_PARTITIONS: Final = each_topic(AclOperation.ALTER, refused_partitions, results="results")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
