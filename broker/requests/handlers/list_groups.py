"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker


def handle(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """All or nothing: while a shard is loading, nobody can say which groups there are."""
    response = ListGroupsResponse()
    for runner in broker.groups.runners:
        if runner.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ListGroupsResponse(error_code=runner.refusal)
        if runner.refusal is ErrorCode.NONE:
            response.groups.extend(runner.shard.list_groups(request.states_filter, request.types_filter))
    return response
