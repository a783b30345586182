"""DeleteRecords: move the start of a partition's log forward, at most to the high watermark.

Answered when the replicas that are alive have followed, so that no leader to come has the records again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.purgatory.delayed_delete import NO_LOW_WATERMARK, DelayedDelete, Wait, refuse, settle
from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from replication.partition import Partition

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker

HIGH_WATERMARK: Final = -1
"""In place of an offset: everything up to the high watermark."""


def handle(
    broker: Broker, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    waits: list[Wait] = []
    response = DeleteRecordsResponse()
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for wish in {each.partition_index: each for each in topic.partitions}.values():
            answer = DeleteRecordsPartitionResult(partition_index=wish.partition_index, low_watermark=NO_LOW_WATERMARK)
            result.partitions.append(answer)
            found = _partition(broker, topic.name, wish.partition_index)
            offset = _delete(found, wish.offset) if isinstance(found, Partition) else found
            if isinstance(offset, ErrorCode):
                refuse(answer, offset)
                continue
            assert isinstance(found, Partition)
            wait = Wait(found, offset, answer)
            if not settle(broker, wait):
                waits.append(wait)
    return DelayedDelete(broker, request.timeout_ms, response, waits).reply if waits else response


def _partition(broker: Broker, topic: str, index: int) -> Partition | ErrorCode:
    """The partition, or why nothing is deleted of it."""
    if broker.is_internal(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    partition = broker.replicas.get(topic, index)
    if partition is None:
        return broker.replicas.why_not(topic, index)
    if not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not partition.log.config.is_deleted_by_retention and partition.log.config.is_compacted:
        return ErrorCode.POLICY_VIOLATION
    return partition


def _delete(partition: Partition, wanted: int) -> int | ErrorCode:
    """The offset before which nothing is left here."""
    offset = partition.high_watermark if wanted == HIGH_WATERMARK else wanted
    if offset < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    refusal = partition.delete_before(offset)
    return offset if refusal is ErrorCode.NONE else refusal
