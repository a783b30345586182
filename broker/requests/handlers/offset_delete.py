"""OffsetDelete (API key 47, version 0; KIP-496): delete committed offsets of a group.

Only offsets of topics to which no member of the group is subscribed are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.group.events import DeleteOffsets
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext


class OffsetDeleteServices(Protocol):
    @property
    def groups(self) -> Groups: ...

    @property
    def cluster(self) -> ClusterView: ...


class MergedDeletion:
    """The reply: the coordinator's results beside those of partitions that do not exist."""

    def __init__(self, refused: list[OffsetDeleteResponseTopic]) -> None:
        self.pending: Pending[OffsetDeleteResponse] = Pending(waits_for=COORDINATOR)
        self._refused = refused

    def complete(self, response: object) -> None:
        assert isinstance(response, OffsetDeleteResponse)
        if response.error_code == ErrorCode.NONE:
            by_name = {topic.name: topic for topic in self._refused}
            for topic in response.topics:
                if topic.name in by_name:
                    by_name[topic.name].partitions.extend(topic.partitions)
                else:
                    self._refused.append(topic)
            response.topics = self._refused
        self.pending.complete(response)


def handle(
    services: OffsetDeleteServices, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    runner = services.groups.runner_of(request.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetDeleteResponse(error_code=runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = services.cluster.image.topics.by_name(topic.name)
        existing = () if known is None else known.partitions
        found = [asked for asked in topic.partitions if asked.partition_index in existing]
        missing = [asked for asked in topic.partitions if asked.partition_index not in existing]
        if found:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=found))
        if missing:
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=list(map(unknown, missing))))
    reply = MergedDeletion(refused)
    request.topics = accepted
    runner.submit(DeleteOffsets(Waiter(reply, context.version), request))
    return reply.pending


def unknown(asked: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(
        partition_index=asked.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
