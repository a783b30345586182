"""OffsetDelete: forget committed offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.pending import Pending
from coordinator.group.events import DeleteOffsets
from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker
    from coordinator.runtime.effects import Response


class MergedReply:
    """Puts what the coordinator says beside what was refused before it was asked."""

    def __init__(self, refused: list[OffsetDeleteResponseTopic]) -> None:
        self.pending: Pending[OffsetDeleteResponse] = Pending()
        self._refused = refused

    def complete(self, response: Response) -> None:
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
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    runner = broker.groups.runner_of(request.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetDeleteResponse(error_code=runner if request.group_id else ErrorCode.INVALID_GROUP_ID)
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = broker.image.topics.by_name(topic.name)
        existing = () if known is None else known.partitions
        found = [wish for wish in topic.partitions if wish.partition_index in existing]
        missing = [wish for wish in topic.partitions if wish.partition_index not in existing]
        if found:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=found))
        if missing:
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=list(map(unknown, missing))))
    reply = MergedReply(refused)
    request.topics = accepted
    runner.submit(DeleteOffsets(Waiter(reply, context.version), request))
    return reply.pending


def unknown(wish: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(
        partition_index=wish.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
