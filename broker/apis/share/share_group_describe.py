"""ShareGroupDescribe (API key 77, version 1; KIP-932): members, epochs and assignments of share groups.

The reply tells only what is committed: it waits for the writes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.needs import Answer, all_of, change_response, each_in, on_group, on_topic
from moldau.broker.apis.parts import cut
from moldau.broker.apis.visibility import GROUP_OPERATIONS, permitted
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.share.describe import not_described
from moldau.coordinator.share.events import DescribeShareGroup
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from moldau.security.access import AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> Pending[ShareGroupDescribeResponse]:
    answers = [describe(services, group_id, context.version) for group_id in request.group_ids]

    def with_operations(described: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        for group in described if request.include_authorized_operations else ():
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = permitted(
                    context.access, GROUP_OPERATIONS, ResourceKind.GROUP, group.group_id
                )
        return ShareGroupDescribeResponse(groups=described)

    return join_answers(answers, with_operations)


def describe(services: Services, group_id: str, version: int) -> DescribedGroup | Pending[DescribedGroup]:
    if not services.cluster.image.features.levels.get(SHARE_VERSION, 0):
        return not_described(group_id, ErrorCode.UNSUPPORTED_VERSION, None)
    if not group_id:
        return not_described(group_id, ErrorCode.INVALID_GROUP_ID, None)
    return submit_event(
        services.groups.runner_of(group_id),
        version,
        lambda waiter: DescribeShareGroup(waiter, group_id),
        lambda error: not_described(group_id, error, ERROR_TEXTS.get(error)),
    )


def without_hidden_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A group with a topic that the client may not describe is refused as a whole."""

    def hide(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        for place, described in enumerate(response.groups):
            names = {
                assigned.topic_name for member in described.members for assigned in member.assignment.topic_partitions
            }
            if not all(on_topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access) for name in names):
                message = "The group has described topic(s) that the client is not authorized to describe."
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                response.groups[place] = not_described(described.group_id, error, message)
        return response

    return change_response(answer(context, request), hide)


API: Final = Api(
    ShareGroupDescribeRequest,
    broker=handle,
    needs=all_of(each_in("group_ids", on_group, AclOperation.DESCRIBE, None, results="groups"), without_hidden_topics),
    lists=[cut("group_ids", "groups", is_distinct=True)],
)
