"""Rules of the APIs that name consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.requests.authorization.rule import (
    REFUSALS,
    Answer,
    Need,
    all_of,
    change_response,
    cluster,
    divided,
    each_in,
    elements_rule,
    every,
    group,
    needs,
    topic,
    topic_by_id,
    transactional_id,
    unless,
    visible,
    with_field,
)
from moldau.broker.requests.handlers import offset_fetch as offset_fetch_handler
from moldau.coordinator.consumer.describe import describe_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.refusals import refused, refused_with_text
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services

COMMIT_BY_ID_VERSION = 10
SHARE_VERSION = 6
"""From this version of FindCoordinator on a key may be that of share state."""
PROTOCOL_VERSION = 5
"""From this version of SyncGroup on members name the protocol."""
GROUP = 0
TRANSACTION = 1
SHARE = 2
"""The types of keys of FindCoordinator."""

MEMBER = needs(group, AclOperation.READ, "group_id")
"""That of the members of a group."""


def sync_group(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """READ on the group. As in Apache Kafka, a request without the protocol's type or name is refused before that."""
    assert isinstance(request, SyncGroupRequest)
    lacks = context.version >= PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name)
    if lacks:
        return refused(request, context.version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return MEMBER(services, context, request, answer)


DESCRIBE_GROUPS = each_in("groups", group, AclOperation.DESCRIBE, None)
DESCRIBE_STREAMS_GROUPS = each_in("group_ids", group, AclOperation.DESCRIBE, None, results="groups")
"""The handler asks for the topics of each group."""
DELETE_GROUPS = each_in("groups_names", group, AclOperation.DELETE, None, results="results")
CONSUMER_GROUP_HEARTBEAT = all_of(MEMBER, every(topic, AclOperation.DESCRIBE, "subscribed_topic_names"))
"""Topics of a regular expression are filtered when it is resolved.

DIVERGES: a client without these rights is told so also where group.version is 0; Apache Kafka answers
UNSUPPORTED_VERSION before it asks the ACLs.
"""


def without_hidden_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A group with a topic that the client may not describe is refused as a whole."""

    def hide(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
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

    return change_response(answer(context, request), hide)


CONSUMER_GROUP_DESCRIBE = all_of(
    each_in("group_ids", group, AclOperation.DESCRIBE, None, results="groups"), without_hidden_topics
)
LIST_GROUPS = unless(AclOperation.DESCRIBE, visible("groups", group, AclOperation.DESCRIBE, "group_id"))
"""DESCRIBE on the cluster shows all groups, DESCRIBE on a group shows that one."""


def find_coordinator(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each group or transactional id; CLUSTER_ACTION for a key of share state, which only brokers look up.
    A type of keys that the version does not have is refused to every client.
    """
    assert isinstance(request, FindCoordinatorRequest)
    kind = request.key_type
    if kind not in (GROUP, TRANSACTION) and (kind != SHARE or context.version < SHARE_VERSION):
        return answer(context, request)
    if request.coordinator_keys:
        rule = elements_rule("coordinator_keys", "coordinators", lambda services, context, key: _coordinated(kind, key))
        return rule(services, context, request, answer)
    if context.version >= offset_fetch_handler.GROUPS_VERSION:
        return answer(context, request)
    need = _coordinated(kind, request.key)
    if need.is_met(context.access):
        return answer(context, request)
    return refused_with_text(request, context.version, REFUSALS[need.kind])


def _coordinated(kind: int, key: str) -> Need:
    if kind == GROUP:
        return group(AclOperation.DESCRIBE, key)
    if kind == TRANSACTION:
        return transactional_id(AclOperation.DESCRIBE, key)
    return cluster(AclOperation.CLUSTER_ACTION)


# Offsets

OFFSET_COMMIT = all_of(MEMBER, elements_rule("topics", "topics", topic_by_id(AclOperation.READ, COMMIT_BY_ID_VERSION)))
OFFSET_DELETE = all_of(needs(group, AclOperation.DELETE, "group_id"), each_in("topics", topic, AclOperation.READ))


def offset_fetch(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each group and each topic. A request for all offsets of a group gets those of the allowed topics."""
    assert isinstance(request, OffsetFetchRequest)
    if context.version < offset_fetch_handler.GROUPS_VERSION:
        return _offsets_of_one(services, context, request, answer)
    denied_groups: dict[int, OffsetFetchResponseGroup] = {}
    asked = []
    denied_topics: list[list[OffsetFetchResponseTopics]] = []
    for place, each in enumerate(request.groups):
        if not group(AclOperation.DESCRIBE, each.group_id).is_met(context.access):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied_groups[place] = OffsetFetchResponseGroup(group_id=each.group_id, error_code=error)
            continue
        allowed, denied = _divided(services, context, each)
        asked.append(allowed)
        denied_topics.append(denied)

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        found = iter(zip(response.groups, denied_topics, asked, strict=True))
        groups = []
        for place in range(len(request.groups)):
            if place in denied_groups:
                groups.append(denied_groups[place])
                continue
            answered, denied, wish = next(found)
            if wish.topics is None:
                answered.topics = _visible(services, context, answered.topics)
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
    allowed, denied = divided(services, context, each.topics, _described)
    refusals = [offset_fetch_handler.no_offsets(wish, error) for wish, error in denied]
    return with_field(each, "topics", allowed), refusals


_described = topic_by_id(AclOperation.DESCRIBE, offset_fetch_handler.TOPIC_ID_VERSION)


def _visible(
    services: Services, context: RequestContext, told: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """The topics that the client may describe; not those whose id is unknown by now."""
    wishes = ((each, _described(services, context, each)) for each in told)
    return [each for each, need in wishes if need is not None and need.is_met_quietly(context.access)]


def _offsets_of_one(services: Services, context: RequestContext, request: OffsetFetchRequest, answer: Answer) -> object:
    """The rule for the versions that ask for one group (1 to 7)."""
    access, asked = context.access, offset_fetch_handler.single_group(request)
    if not group(AclOperation.DESCRIBE, request.group_id).is_met(access):
        return refused(request, context.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.topics is None:

        def shown(response: OffsetFetchResponse) -> OffsetFetchResponse:
            response.topics = [
                each for each in response.topics if topic(AclOperation.DESCRIBE, each.name).is_met_quietly(access)
            ]
            return response

        return change_response(answer(context, request), shown)
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
