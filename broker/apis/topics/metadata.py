"""Metadata (API key 3, versions 0-13; KIP-4, KIP-78, KIP-320, KIP-430, KIP-516): brokers, topics and leaders.

0: an empty list asks for all topics · 1: null does (KIP-4) · 2: the cluster's id (KIP-78) · 4: the client says whether
a topic may be created · 5: offline replicas (KIP-112) · 7: leader epochs (KIP-320) · 8: authorized operations (KIP-430)
· 10: topic ids, by which topics may be asked for from 12 on (KIP-516) · 13: an error for the whole request (KIP-1102).

The response has the brokers that are alive, and the leader of each partition of the requested topics. A topic that does
not exist may be created (`auto.create.topics.enable`). A large response is made in an executor thread.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from copy import copy
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.large import Client, FindVisible, MetadataQuery
from moldau.broker.apis.needs import (
    NOT_ASKED,
    TOPIC_OPERATIONS,
    handler_asks,
    on_cluster,
    on_topic,
    permitted_cluster_operations,
    permitted_operations,
)
from moldau.broker.apis.parts import Answering, ListPath, PartRules, RequestPart, RestartAfter
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.kraft.image.cluster import ClusterImage
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, Topic, TopicsImage
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.refusals import refused
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import Access, AclOperation, ResourceKind

NULL_MEANS_ALL_VERSION: Final = 1
"""The first version in which null asks for all topics. In version 0 an empty list does."""
LARGE: Final = 200
"""The most topics and partitions in a response that is made on the event loop, which takes at most 2 ms."""
ASKED_BY_ID_VERSION: Final = 12
"""The first version whose requests may name topics by id. Versions 10 and 11 have topic ids in the response only."""


def handle(services: Services, context: RequestContext, request: MetadataRequest) -> object:
    if context.version < ASKED_BY_ID_VERSION and any(map(_is_by_id, request.topics or ())):
        return refused(request, context.version, ErrorCode.INVALID_REQUEST)
    asks_for_all = request.topics is None or (not request.topics and context.version < NULL_MEANS_ALL_VERSION)
    creates = request.allow_auto_topic_creation and services.config.flag("auto.create.topics.enable")
    access, requested = context.access, None if asks_for_all else request.topics
    image = services.cluster.image
    question = MetadataQuery(
        image=image,
        listener=context.listener.name,
        nodes=tuple(services.cluster.live_nodes(context.listener.name)),
        controller_id=services.cluster.any_live_node_id(),
        cluster_id=services.cluster.id,
        requested=requested,
        topic_operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
        cluster_operations=permitted_cluster_operations(access)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        new_topics_max=NEW_PARTITIONS_MAX // services.settings.config.integer("num.partitions") if creates else 0,
    )
    if access.is_unrestricted:
        return _answered(services, context, question)
    if requested is None:
        return services.long_requests.answer(context, _visible_answered(services, context, question))
    shown, denied = visible_topics(access, image.topics, requested, creates=creates)
    operations = None if question.topic_operations == NOT_ASKED else operations_on(access, image.topics, shown)
    return _answered(services, context, question._replace(requested=shown, denied=denied, operations=operations))


def _answered(services: Services, context: RequestContext, question: MetadataQuery) -> object:
    large = services.large_metadata
    if not context.is_part and (known := large.kept_response(question, context.version)) is not None:
        return known
    if _is_large(question):
        if context.is_part:
            return large.describe(context, question, answer)
        return large.ask(context, question, answer)
    response, missing = answer(question)
    for name in missing:
        # The response does not wait for the new topic: clients send the request again, as they do with Apache Kafka.
        services.topics.create(name)
    return response


def _visible_answered(services: Services, context: RequestContext, question: MetadataQuery) -> Answering:
    """Answer a question for all topics by those that the client may describe. Yields for each topic."""
    client = Client(context.access.principal, context.client_host, context.access.stamp)
    visible = yield from services.large_metadata.visible(client, question, all_visible(context.access, question))
    return _answered(services, context, visible)


def all_visible(access: Access, question: MetadataQuery) -> FindVisible:
    """Restrict a question for all topics to those that the client may describe. Yields for each topic."""
    shown, topics = [], question.image.topics
    operations: dict[bytes | str, int] | None = None if question.topic_operations == NOT_ASKED else {}
    for name in topics.ids:
        yield
        if on_topic(AclOperation.DESCRIBE, name).is_met_quietly(access):
            shown.append(MetadataRequestTopic(name=name))
            if operations is not None:
                operations |= operations_on(access, topics, shown[-1:])
    return question._replace(requested=shown, operations=operations)


def visible_topics(
    access: Access, topics: TopicsImage, requested: Sequence[MetadataRequestTopic], *, creates: bool
) -> tuple[list[MetadataRequestTopic], list[MetadataResponseTopic]]:
    """Split the requested topics into those that the client may describe, and refusals for the others, each with only
    the name or only the id, as the client has sent it. If `creates`, a topic that does not exist would be created,
    which needs CREATE on the cluster or on the topic. An unknown topic id needs no permission: it gets the usual error,
    which reveals no topic."""
    allowed: list[MetadataRequestTopic] = []
    denied: list[MetadataResponseTopic] = []
    for each in requested:
        is_by_id, known = _is_by_id(each), _found(topics, each)
        name = each.name if not is_by_id else None if known is None else known.name
        if name is None:
            allowed.append(each)
        elif not on_topic(AclOperation.DESCRIBE, name).is_met(access):
            denied.append(_denied(None if is_by_id else name, each.topic_id if is_by_id else ZERO_UUID))
        elif known is None and creates and not _may_create(access, name):
            denied.append(_denied(name, ZERO_UUID))
        else:
            allowed.append(each)
    return allowed, denied


def operations_on(
    access: Access, topics: TopicsImage, requested: Sequence[MetadataRequestTopic]
) -> dict[bytes | str, int]:
    """The operations that the client may do on each requested topic: by topic id, or by name if the topic does not
    exist."""
    operations: dict[bytes | str, int] = {}
    for each in requested:
        known = _found(topics, each)
        if known is not None:
            operations[known.id] = permitted_operations(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, known.name)
        elif each.name is not None:
            operations[each.name] = permitted_operations(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, each.name)
    return operations


def _may_create(access: Access, name: str) -> bool:
    return on_cluster(AclOperation.CREATE).is_met_quietly(access) or on_topic(AclOperation.CREATE, name).is_met(access)


def _denied(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id)


def _is_large(question: MetadataQuery) -> bool:
    """Whether the response has too many partitions to be made on the event loop. The count stops at the limit."""
    topics, requested = question.image.topics, question.requested
    if requested is not None and len(requested) > LARGE:
        return True
    found = topics.by_id.values() if requested is None else (_found(topics, each) for each in requested)
    count = 0
    for each in found:
        count += 1 if each is None else 1 + len(each.partitions)
        if count > LARGE:
            return True
    return False


def answer(question: MetadataQuery) -> tuple[MetadataResponse, list[str]]:
    """Make the response to a question. Returns it with the names of the topics to create."""
    wanted = list(_wanted(question.image.topics, question.requested))
    missing_count = sum(type(topic) is not Topic for topic in wanted)
    missing: list[str] | None = [] if missing_count <= question.new_topics_max else None
    reachable = frozenset(
        node_id for node_id, node in question.image.cluster.brokers.items() if question.listener in node.endpoints
    )
    topics = [
        _described(question, topic, reachable) if isinstance(topic, Topic) else _missing(question, topic, missing)
        for topic in wanted
    ]
    topics.extend(question.denied)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in question.nodes
        ],
        cluster_id=question.cluster_id,
        controller_id=question.controller_id,
        topics=topics,
        cluster_authorized_operations=question.cluster_operations,
    )
    return response, missing or []


def _is_by_id(requested_topic: MetadataRequestTopic) -> bool:
    """Whether a topic is requested by its id. If a client sends a name and an id, the id is used."""
    return requested_topic.name is None or requested_topic.topic_id != ZERO_UUID


def _wanted(
    topics: TopicsImage, requested: Sequence[MetadataRequestTopic] | None
) -> Iterable[Topic | MetadataRequestTopic]:
    """The requested topics, without repetitions. A topic that does not exist is represented by its element of the
    request."""
    if requested is None:
        return topics.by_id.values()
    # DIVERGES: Apache Kafka fails the whole request on a topic with neither name nor id; here it is unknown.
    return {
        (each.topic_id if _is_by_id(each) else each.name or ""): _found(topics, each) or each for each in requested
    }.values()


def _found(topics: TopicsImage, requested_topic: MetadataRequestTopic) -> Topic | None:
    by_id = _is_by_id(requested_topic)
    return topics.by_id.get(requested_topic.topic_id) if by_id else topics.by_name(requested_topic.name or "")


def _described(question: MetadataQuery, topic: Topic, reachable: Collection[int]) -> MetadataResponseTopic:
    cluster = question.image.cluster
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(cluster, reachable, index, partition) for index, partition in sorted(topic.partitions.items())
        ],
        topic_authorized_operations=question.topic_operations
        if question.operations is None
        else question.operations[topic.id],
    )


def _partition(
    cluster: ClusterImage, reachable: Collection[int], index: int, partition: PartitionRegistration
) -> MetadataResponsePartition:
    """The metadata of a partition. `reachable` has the brokers with an address at the listener of this request."""
    error, leader = ErrorCode.NONE, partition.leader
    if leader not in reachable:
        error = ErrorCode.LISTENER_NOT_FOUND if leader in cluster.brokers else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=partition.offline_replicas(cluster),
    )


def _missing(
    question: MetadataQuery, requested_topic: MetadataRequestTopic, missing: list[str] | None
) -> MetadataResponseTopic:
    """The result for a topic that does not exist. Its name is added to `missing`, the topics to create; None if none is
    created."""
    if _is_by_id(requested_topic) or requested_topic.name is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=requested_topic.topic_id
        )
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refusal_of_name(requested_topic.name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif missing is not None:
        missing.append(requested_topic.name)
    return MetadataResponseTopic(
        error_code=error,
        name=requested_topic.name,
        topic_id=ZERO_UUID,
        is_internal=requested_topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=question.topic_operations
        if question.operations is None
        else question.operations[requested_topic.name],
    )


class MetadataParts(PartRules):
    """How requests for the metadata of topics are cut into parts."""

    __slots__ = ()

    def parts_of(self, request: object) -> Generator[RequestPart | RestartAfter | None, object, None]:
        """Yield the parts of a request. If it has more topics than one request may create, no topic is created, as in
        Apache Kafka. DIVERGES: topics that exist count here."""
        assert isinstance(request, MetadataRequest)
        if len(request.topics or ()) > NEW_PARTITIONS_MAX:
            request = copy(request)
            request.allow_auto_topic_creation = False
        return PartRules.parts_of(self, request)


API: Final = Api(
    MetadataRequest,
    broker=handle,
    needs=handler_asks,
    lists=[MetadataParts((ListPath("topics", "topics"),), is_distinct=True)],
)
