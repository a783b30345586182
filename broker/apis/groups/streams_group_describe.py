"""StreamsGroupDescribe (API key 89, versions 0-1; KIP-1071, KIP-1331): topology, members, tasks of streams groups.

A group of whose topics the client may not describe one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.groups.streams_group_heartbeat import FEATURE, denied_of
from moldau.broker.apis.needs import each_in, on_group
from moldau.broker.apis.parts import cut
from moldau.broker.apis.visibility import GROUP_OPERATIONS, permitted
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.streams.describe import not_described
from moldau.coordinator.streams.events import DescribeStreamsGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Topology,
)
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

NOT_STORED: Final = 1
"""The status of the description of a topology that is not stored: no broker here has a plugin that stores them."""
UNSEEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


def handle(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Pending[StreamsGroupDescribeResponse]:
    asks, asks_description = request.include_authorized_operations, request.include_topology_description

    def response_of(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
        for group in groups:
            if asks_description and group.error_code == ErrorCode.NONE:
                group.topology_description_status = NOT_STORED
        return StreamsGroupDescribeResponse(groups=[as_seen(group, context.access, asks=asks) for group in groups])

    return join_answers([describe(services, group_id, context.version) for group_id in request.group_ids], response_of)


def describe(services: Services, group_id: str, version: int) -> DescribedGroup | Pending[DescribedGroup]:
    if not services.cluster.image.features.levels.get(FEATURE, 0):
        return not_described(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return not_described(group_id, ErrorCode.INVALID_GROUP_ID)
    return submit_event(
        services.groups.runner_of(group_id),
        version,
        lambda waiter: DescribeStreamsGroup(waiter, group_id),
        lambda error: not_described(group_id, error),
    )


def as_seen(group: DescribedGroup, access: Access, *, asks: bool) -> DescribedGroup:
    """The description for a client; with its rights on the group if it asks for them."""
    if asks and group.error_code == ErrorCode.NONE:
        group.authorized_operations = permitted(access, GROUP_OPERATIONS, ResourceKind.GROUP, group.group_id)
    if access.is_unrestricted or group.topology is None:
        return group
    denied = denied_of(topics_of(group.topology), AclOperation.DESCRIBE, access)
    if denied:
        return not_described(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, UNSEEN_TOPICS)
    return group


def topics_of(topology: Topology) -> list[str]:
    names: dict[str, None] = {}
    for subtopology in topology.subtopologies or ():
        names |= dict.fromkeys((*subtopology.source_topics, *subtopology.repartition_sink_topics))
        names |= dict.fromkeys(each.name for each in subtopology.repartition_source_topics)
        names |= dict.fromkeys(each.name for each in subtopology.state_changelog_topics)
    return list(names)


API: Final = Api(
    StreamsGroupDescribeRequest,
    broker=handle,
    needs=each_in("group_ids", on_group, AclOperation.DESCRIBE, None, results="groups"),
    lists=[cut("group_ids", "groups")],
)
