"""OffsetDelete (API key 47, version 0; KIP-496): delete committed offsets of a group.

Only offsets of topics to which no member of the group is subscribed are deleted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import all_of, each_in, needs, on_group, on_topic
from moldau.broker.apis.parts import RECORDS_SIZE, cut
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.group.events import DeleteOffsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: DeleteOffsets(waiter, request),
        lambda error: OffsetDeleteResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID),
        partial(merged, divide(services.cluster, request)),
    )


def merged(refused: list[OffsetDeleteResponseTopic], response: object) -> OffsetDeleteResponse:
    """The response: the coordinator's results beside those of partitions that do not exist."""
    assert isinstance(response, OffsetDeleteResponse)
    if response.error_code == ErrorCode.NONE:
        by_name = {topic.name: topic for topic in refused}
        for topic in response.topics:
            if topic.name in by_name:
                by_name[topic.name].partitions.extend(topic.partitions)
            else:
                refused.append(topic)
        response.topics = refused
    return response


def divide(cluster: ClusterView, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
    """Leave the partitions that exist in the request. Returns the results of the others."""
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = cluster.image.topics.by_name(topic.name)
        existing = () if known is None else known.partitions
        found = [asked for asked in topic.partitions if asked.partition_index in existing]
        missing = [asked for asked in topic.partitions if asked.partition_index not in existing]
        if found:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=found))
        if missing:
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=list(map(unknown, missing))))
    request.topics = accepted
    return refused


def unknown(asked: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(
        partition_index=asked.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


API: Final = Api(
    OffsetDeleteRequest,
    broker=handle,
    needs=all_of(needs(on_group, AclOperation.DELETE, "group_id"), each_in("topics", on_topic, AclOperation.READ)),
    lists=[cut("topics.partitions", size=RECORDS_SIZE)],
)
