"""Rules of the APIs that name consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from moldau.broker.requests.authorization.rule import (
    REFUSALS,
    Answer,
    ElementsRule,
    Need,
    RequestRule,
    Rule,
    change_response,
    cluster,
    field_of,
    group,
    only_visible,
    refuse_all,
    topic,
    transactional_id,
    with_field,
)
from moldau.broker.requests.handlers import offset_fetch as offset_fetch_handler
from moldau.coordinator.consumer.describe import describe_error
from moldau.coordinator.streams.events import not_described
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.delete_groups import DeletableGroupResult
from moldau.protocol.messages.describe_groups import DescribedGroup
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.list_groups import ListedGroup
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.parts import Answering
    from moldau.broker.requests.services import Services
    from moldau.kraft.image.topics import TopicsImage

COMMIT_BY_ID_VERSION = 10
SHARE_VERSION = 6
"""From this version of FindCoordinator on a key may be that of share state."""
NULL_PROTOCOL_VERSION = 7
"""From this version of JoinGroup on a refusal has no protocol."""
PROTOCOL_VERSION = 5
"""From this version of SyncGroup on members name the protocol."""
COORDINATOR_MESSAGES = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""The messages of FindCoordinator before version 4."""
GROUP = 0
TRANSACTION = 1
SHARE = 2
"""The types of keys of FindCoordinator."""

_group_id = field_of("group_id")
MEMBER: Rule = RequestRule(lambda request: group(AclOperation.READ, _group_id(request)))
"""That of the members of a group."""


def join_group(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """READ on the group."""
    assert isinstance(request, JoinGroupRequest)
    if group(AclOperation.READ, request.group_id).is_met(context.access):
        return answer(context, request)
    name = None if context.version >= NULL_PROTOCOL_VERSION else ""
    return JoinGroupResponse(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, protocol_name=name, leader="", member_id=""
    )


def sync_group(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """READ on the group. As in Apache Kafka, a request without the protocol's type or name is refused before that."""
    assert isinstance(request, SyncGroupRequest)
    lacks = context.version >= PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name)
    if lacks:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    return MEMBER(services, context, request, answer)


def _text(element: object) -> str:
    assert isinstance(element, str)
    return element


DESCRIBE_GROUPS: Rule = ElementsRule(
    "groups",
    "groups",
    lambda element: group(AclOperation.DESCRIBE, _text(element)),
    lambda element, error: DescribedGroup(
        error_code=error, group_id=_text(element), group_state="", protocol_type="", protocol_data=""
    ),
)
DESCRIBE_STREAMS_GROUPS: Rule = ElementsRule(
    "group_ids",
    "groups",
    lambda element: group(AclOperation.DESCRIBE, _text(element)),
    lambda element, error: not_described(_text(element), error),
)
"""The handler asks for the topics of each group."""
DELETE_GROUPS: Rule = ElementsRule(
    "groups_names",
    "results",
    lambda element: group(AclOperation.DELETE, _text(element)),
    lambda element, error: DeletableGroupResult(group_id=_text(element), error_code=error),
)


def consumer_group_heartbeat(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """READ on the group, and DESCRIBE on each topic that the request names. Topics of a regular expression are filtered
    when it is resolved.

    DIVERGES: a client without these rights is told so also where group.version is 0; Apache Kafka answers
    UNSUPPORTED_VERSION before it asks the ACLs.
    """
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if not group(AclOperation.READ, request.group_id).is_met(context.access):
        return refuse_all(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = dict.fromkeys(request.subscribed_topic_names or ())

    def answering() -> Answering:
        for name in names:
            yield
            if not topic(AclOperation.DESCRIBE, name).is_met(context.access):
                return refuse_all(context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answer(context, request)

    return services.long_requests.answer(context, answering()) if names else answer(context, request)


_DESCRIBED_GROUPS: Rule = ElementsRule(
    "group_ids",
    "groups",
    lambda element: group(AclOperation.DESCRIBE, _text(element)),
    lambda element, error: describe_error(_text(element), error),
)


def consumer_group_describe(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each group; a group with a topic that the client may not describe is refused as a whole."""

    def without_hidden_topics(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        visible: dict[str, bool] = {}
        for place, described in enumerate(response.groups):
            for name in {
                assigned.topic_name
                for member in described.members
                for assignment in (member.assignment, member.target_assignment)
                for assigned in assignment.topic_partitions
            }:
                if name not in visible:
                    visible[name] = topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access)
                if not visible[name]:
                    message = "the group has topics that the client may not describe"
                    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    response.groups[place] = describe_error(described.group_id, error, message)
        return response

    return change_response(_DESCRIBED_GROUPS(services, context, request, answer), without_hidden_topics)


def list_groups(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on the cluster shows all groups, DESCRIBE on a group shows that one."""
    access = context.access
    if cluster(AclOperation.DESCRIBE).is_met_quietly(access):
        return answer(context, request)

    def is_visible(each: ListedGroup) -> bool:
        return group(AclOperation.DESCRIBE, each.group_id).is_met_quietly(access)

    return only_visible(services, context, answer(context, request), "groups", is_visible)


def find_coordinator(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each group or transactional id; CLUSTER_ACTION for a key of share state, which only brokers look up.
    A type of keys that the version does not have is refused to every client.
    """
    assert isinstance(request, FindCoordinatorRequest)
    kind = request.key_type
    if kind not in (GROUP, TRANSACTION) and (kind != SHARE or context.version < SHARE_VERSION):
        return answer(context, request)
    if request.coordinator_keys:
        each = ElementsRule(
            "coordinator_keys", "coordinators", lambda key: _coordinated(kind, _text(key)), _refused_coordinator
        )
        return each(services, context, request, answer)
    if context.version >= offset_fetch_handler.GROUPS_VERSION:
        return answer(context, request)
    need = _coordinated(kind, request.key)
    if need.is_met(context.access):
        return answer(context, request)
    error = REFUSALS[need.kind]
    return FindCoordinatorResponse(
        error_code=error, error_message=COORDINATOR_MESSAGES[error], node_id=-1, host="", port=-1
    )


def _coordinated(kind: int, key: str) -> Need:
    if kind == GROUP:
        return group(AclOperation.DESCRIBE, key)
    if kind == TRANSACTION:
        return transactional_id(AclOperation.DESCRIBE, key)
    return cluster(AclOperation.CLUSTER_ACTION)


def _refused_coordinator(element: object, error: ErrorCode) -> Coordinator:
    message = "Cluster authorization failed." if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ""
    return Coordinator(key=_text(element), node_id=-1, host="", port=-1, error_code=error, error_message=message)


# Offsets


def offset_commit(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """READ on the group and on each topic. For an unknown topic id the answer is the usual error, because it reveals no
    topic.
    """
    assert isinstance(request, OffsetCommitRequest)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not group(AclOperation.READ, request.group_id).is_met(context.access):
        return OffsetCommitResponse(topics=[_refused_commit(each, error) for each in request.topics])
    name_of = _names(services.cluster.image.topics, by_id=context.version >= COMMIT_BY_ID_VERSION)
    allowed, refusals = [], []
    for each in request.topics:
        name = name_of(each)
        if name is None or topic(AclOperation.READ, name).is_met(context.access):
            allowed.append(each)
        else:
            refusals.append(_refused_commit(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if not refusals:
        return answer(context, request)

    def add(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics.extend(refusals)
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), add)


def _refused_commit(each: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    partitions = [
        OffsetCommitResponsePartition(partition_index=wish.partition_index, error_code=error)
        for wish in each.partitions
    ]
    return OffsetCommitResponseTopic(name=each.name, topic_id=each.topic_id, partitions=partitions)


def _names(topics: TopicsImage, *, by_id: bool) -> Callable[[object], str | None]:
    """A function that gives the name of a topic of the request; None for an unknown id."""

    def name_of(element: object) -> str | None:
        if not by_id:
            return cast("OffsetCommitRequestTopic", element).name
        known = topics.by_id.get(cast("OffsetCommitRequestTopic", element).topic_id)
        return None if known is None else known.name

    return name_of


def offset_delete(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DELETE on the group, and READ on each topic."""
    assert isinstance(request, OffsetDeleteRequest)
    if not group(AclOperation.DELETE, request.group_id).is_met(context.access):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def whole(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code != ErrorCode.NONE:
            response.topics = []  # an error of the group stands alone
        return response

    return change_response(DELETED_OFFSETS(services, context, request, answer), whole)


_name = field_of("name")
DELETED_OFFSETS: Rule = ElementsRule(
    "topics",
    "topics",
    lambda element: topic(AclOperation.READ, _name(element)),
    lambda element, error: OffsetDeleteResponseTopic(
        name=_name(element),
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in cast("OffsetDeleteResponseTopic", element).partitions
        ],
    ),
)


def offset_fetch(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each group and each topic. A request for all offsets of a group gets those of the allowed topics."""
    assert isinstance(request, OffsetFetchRequest)
    if context.version < offset_fetch_handler.GROUPS_VERSION:
        return _offsets_of_one(services, context, request, answer)
    refused: dict[int, OffsetFetchResponseGroup] = {}
    asked = []
    denied_topics: list[list[OffsetFetchResponseTopics]] = []
    for place, each in enumerate(request.groups):
        if not group(AclOperation.DESCRIBE, each.group_id).is_met(context.access):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused[place] = OffsetFetchResponseGroup(group_id=each.group_id, error_code=error)
            continue
        allowed, denied = _divided(services, context, each)
        asked.append(allowed)
        denied_topics.append(denied)

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        found = iter(zip(response.groups, denied_topics, asked, strict=True))
        groups = []
        for place in range(len(request.groups)):
            if place in refused:
                groups.append(refused[place])
                continue
            answered, denied, wish = next(found)
            if wish.topics is None:
                answered.topics = _visible(context, services.cluster.image.topics, answered.topics)
            elif answered.error_code == ErrorCode.NONE:
                answered.topics.extend(denied)
            groups.append(answered)
        response.groups = groups
        return response

    return change_response(answer(context, with_field(request, "groups", asked)), add)


def _divided(
    services: Services, context: RequestContext, each: OffsetFetchRequestGroup
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """The group with the topics that are allowed, and refusals for the others."""
    if each.topics is None:
        return each, []
    by_id = context.version >= offset_fetch_handler.TOPIC_ID_VERSION
    name_of = _names(services.cluster.image.topics, by_id=by_id)
    allowed, denied = [], []
    for wish in each.topics:
        name = name_of(wish)
        if name is None or topic(AclOperation.DESCRIBE, name).is_met(context.access):
            allowed.append(wish)
        else:
            denied.append(offset_fetch_handler.no_offsets(wish, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return with_field(each, "topics", allowed), denied


def _visible(
    context: RequestContext, topics: TopicsImage, told: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    name_of = _names(topics, by_id=context.version >= offset_fetch_handler.TOPIC_ID_VERSION)
    return [
        each
        for each in told
        if (name := name_of(each)) is not None and topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access)
    ]


def _offsets_of_one(services: Services, context: RequestContext, request: OffsetFetchRequest, answer: Answer) -> object:
    """The rule for the versions that ask for one group (1 to 7)."""
    access, asked = context.access, offset_fetch_handler.single_group(request)
    if not group(AclOperation.DESCRIBE, request.group_id).is_met(access):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        refused = OffsetFetchResponseGroup(
            group_id=request.group_id,
            error_code=error,
            topics=[offset_fetch_handler.no_offsets(each, error) for each in asked.topics or ()]
            if context.version < offset_fetch_handler.GROUP_ERROR_VERSION
            else [],
        )
        return offset_fetch_handler.in_version([refused], context.version)
    if request.topics is None:

        def visible(response: OffsetFetchResponse) -> OffsetFetchResponse:
            response.topics = [
                each for each in response.topics if topic(AclOperation.DESCRIBE, each.name).is_met_quietly(access)
            ]
            return response

        return change_response(answer(context, request), visible)
    allowed = [each for each in request.topics if topic(AclOperation.DESCRIBE, each.name).is_met(access)]
    names = {each.name for each in allowed}
    denied = [
        offset_fetch_handler.no_offsets(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for each in asked.topics or ()
        if each.name not in names
    ]

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if denied and response.error_code == ErrorCode.NONE:
            group_of_denied = OffsetFetchResponseGroup(group_id=request.group_id, topics=denied)
            response.topics.extend(offset_fetch_handler.in_version([group_of_denied], context.version).topics)
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), add)
