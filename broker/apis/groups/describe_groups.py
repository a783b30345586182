"""DescribeGroups (API key 15, versions 0-6; KIP-345, KIP-430, KIP-1043): state and members of classic groups.

3: authorized operations (KIP-430) · 4: instance ids (KIP-345) · 6: a group that does not exist is an error (KIP-1043).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import add_authorized_operations
from moldau.broker.apis.needs import each_in, on_group
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.coordinators.groups import Groups
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [describe(services.groups, group_id, context.version) for group_id in request.groups]
    if request.include_authorized_operations:
        add_authorized_operations(context.access, groups)
    return DescribeGroupsResponse(groups=groups)


def describe(groups: Groups, group_id: str, version: int) -> DescribedGroup:
    runner = groups.runner_of(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id, group_state="", protocol_type="", protocol_data="")
    from moldau.coordinator.classic.group import describe as describe_classic

    return describe_classic(runner.shard.group(group_id), group_id, version)


API: Final = Api(
    DescribeGroupsRequest,
    broker=handle,
    needs=each_in("groups", on_group, AclOperation.DESCRIBE, None),
    lists=[in_parts("groups", is_distinct=True)],
)
