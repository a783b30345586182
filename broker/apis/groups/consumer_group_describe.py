"""ConsumerGroupDescribe (API key 69, versions 0-1; KIP-848): members, epochs and assignments of consumer groups.

The reply tells only what is committed: it waits for the writes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.needs import Answer, all_of, change_response, each_in, on_group, on_topic
from moldau.broker.apis.parts import cut
from moldau.broker.apis.visibility import GROUP_OPERATIONS, permitted
from moldau.broker.coordinators.groups import Groups
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.consumer.describe import not_described
from moldau.coordinator.consumer.events import DescribeConsumerGroup
from moldau.kraft.features import GROUP_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.security.access import AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Pending[ConsumerGroupDescribeResponse]:
    is_on = services.cluster.image.features.levels.get(GROUP_VERSION, 0) > 0
    answers = [describe(services.groups, group_id, context.version, is_on=is_on) for group_id in request.group_ids]

    def with_operations(described: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        for group in described if request.include_authorized_operations else ():
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = permitted(
                    context.access, GROUP_OPERATIONS, ResourceKind.GROUP, group.group_id
                )
        return ConsumerGroupDescribeResponse(groups=described)

    return join_answers(answers, with_operations)


def describe(groups: Groups, group_id: str, version: int, *, is_on: bool) -> DescribedGroup | Pending[DescribedGroup]:
    if not is_on:
        return not_described(group_id, ErrorCode.UNSUPPORTED_VERSION)
    return submit_event(
        groups.runner_of(group_id),
        version,
        lambda waiter: DescribeConsumerGroup(waiter, group_id),
        lambda error: not_described(group_id, error if group_id else ErrorCode.INVALID_GROUP_ID),
    )


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
                    visible[name] = on_topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access)
                if not visible[name]:
                    message = "the group has topics that the client may not describe"
                    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    response.groups[place] = not_described(described.group_id, error, message)
        return response

    return change_response(answer(context, request), hide)


API: Final = Api(
    ConsumerGroupDescribeRequest,
    broker=handle,
    needs=all_of(each_in("group_ids", on_group, AclOperation.DESCRIBE, None, results="groups"), without_hidden_topics),
    lists=[cut("group_ids", "groups", is_distinct=True)],
)
