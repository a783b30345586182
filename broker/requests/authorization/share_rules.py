"""Rules of the APIs of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from moldau.broker.requests.authorization.rule import Answer, ElementsRule, Rule, change_response, group, topic
from moldau.coordinator.share.describe import not_described
from moldau.coordinator.share.heartbeat import Refusal, refused
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeResponse
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services


def heartbeat(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """READ on the group, and DESCRIBE on each topic that the request names.

    DIVERGES: a client without these rights is told so also where share.version is 0; Apache Kafka answers
    UNSUPPORTED_VERSION before it asks the ACLs.
    """
    assert isinstance(request, ShareGroupHeartbeatRequest)
    if not group(AclOperation.READ, request.group_id).is_met(context.access):
        return refused(Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if not all(topic(AclOperation.DESCRIBE, name).is_met(context.access) for name in names):
        return refused(Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return answer(context, request)


_DESCRIBED: Rule = ElementsRule(
    "group_ids",
    "groups",
    lambda element: group(AclOperation.DESCRIBE, cast("str", element)),
    lambda element, error: not_described(cast("str", element), error, None),
)


def describe(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each group; a group with a topic that the client may not describe is refused as a whole."""

    def without_hidden_topics(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        for place, described in enumerate(response.groups):
            names = {
                assigned.topic_name for member in described.members for assigned in member.assignment.topic_partitions
            }
            if not all(topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access) for name in names):
                message = "The group has described topic(s) that the client is not authorized to describe."
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                response.groups[place] = not_described(described.group_id, error, message)
        return response

    return change_response(_DESCRIBED(services, context, request, answer), without_hidden_topics)
