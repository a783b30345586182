"""DeleteRecords: move the start of a partition's log forward, at most to the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from broker.connection import RequestContext
    from broker.node import Broker

HIGH_WATERMARK: Final = -1
"""In place of an offset: everything up to the high watermark."""
NO_LOW_WATERMARK: Final = -1


def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(broker, topic.name, wish)
                    for wish in {each.partition_index: each for each in topic.partitions}.values()
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, topic: str, wish: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    def refuse(error: ErrorCode) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(
            partition_index=wish.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error
        )

    if broker.is_internal(topic):
        return refuse(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = broker.replicas.get(topic, wish.partition_index)
    if partition is None:
        return refuse(broker.replicas.why_not(topic, wish.partition_index))
    if not partition.is_leader:
        return refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if not partition.log.config.is_deleted_by_retention and partition.log.config.is_compacted:
        return refuse(ErrorCode.POLICY_VIOLATION)
    offset = partition.high_watermark if wish.offset == HIGH_WATERMARK else wish.offset
    if offset < 0:
        return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
    refusal = partition.log.advance_log_start(offset, partition.high_watermark)
    if refusal is not ErrorCode.NONE:
        return refuse(refusal)
    return DeleteRecordsPartitionResult(
        partition_index=wish.partition_index, low_watermark=partition.log.log_start_offset
    )
