"""DescribeGroups: the state and the members of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.requests.authorized_operations import GROUP_OPERATIONS
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker


def handle(broker: Broker, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [describe(broker, group_id, context.version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def describe(broker: Broker, group_id: str, version: int) -> DescribedGroup:
    runner = broker.groups.runner_of(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id, group_state="", protocol_type="", protocol_data="")
    return runner.shard.describe(group_id, version)
