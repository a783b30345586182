"""Rules of the APIs of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.requests.authorization.rule import (
    Answer,
    all_of,
    change_response,
    each_in,
    every,
    group,
    needs,
    topic,
)
from moldau.coordinator.share.describe import not_described
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeResponse
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services

HEARTBEAT = all_of(
    needs(group, AclOperation.READ, "group_id"), every(topic, AclOperation.DESCRIBE, "subscribed_topic_names")
)
"""DIVERGES: a client without these rights is told so also where share.version is 0; Apache Kafka answers
UNSUPPORTED_VERSION before it asks the ACLs.
"""


def without_hidden_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A group with a topic that the client may not describe is refused as a whole."""

    def hide(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        for place, described in enumerate(response.groups):
            names = {
                assigned.topic_name for member in described.members for assigned in member.assignment.topic_partitions
            }
            if not all(topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access) for name in names):
                message = "The group has described topic(s) that the client is not authorized to describe."
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                response.groups[place] = not_described(described.group_id, error, message)
        return response

    return change_response(answer(context, request), hide)


DESCRIBE = all_of(each_in("group_ids", group, AclOperation.DESCRIBE, None, results="groups"), without_hidden_topics)
