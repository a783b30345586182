"""StreamsGroupDescribe (API key 89, versions 0-1; KIP-1071, KIP-1331): topology, members, tasks of streams groups.

1: the status of the topology's description (KIP-1331). A group with a topic that the client may not describe is
refused.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import describe_groups
from moldau.broker.apis.groups.streams_group_heartbeat import FEATURE, denied_of, topics_of
from moldau.broker.apis.needs import change_response, each_in, on_group
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.coordinator.streams.describe import not_described
from moldau.coordinator.streams.events import DescribeStreamsGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from moldau.security.access import Access, AclOperation

NOT_STORED: Final = 1
"""The status of a topology's description that is not stored. No broker here stores one, as that needs a plugin."""
HIDDEN: Final = "The described group uses topics that the client is not authorized to describe."


def handle(services: Services, context: RequestContext, request: StreamsGroupDescribeRequest) -> object:
    described = describe_groups(services, context, request, FEATURE, DescribeStreamsGroup, not_described)

    def seen(response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        if request.include_topology_description:
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    group.topology_description_status = NOT_STORED
        response.groups = [without_hidden_topology(group, context.access) for group in response.groups]
        return response

    return change_response(described, seen)


def without_hidden_topology(group: DescribedGroup, access: Access) -> DescribedGroup:
    """The description of a group, or a refusal if the client may not describe one of its topics. A denial goes to the
    audit log."""
    if access.is_unrestricted or group.topology is None:
        return group
    if denied_of(topics_of(group.topology.subtopologies or ()), AclOperation.DESCRIBE, access):
        return not_described(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
    return group


API: Final = Api(
    StreamsGroupDescribeRequest,
    broker=handle,
    needs=each_in("group_ids", on_group, AclOperation.DESCRIBE, None, results="groups"),
    lists=[in_parts("group_ids", "groups")],
)
