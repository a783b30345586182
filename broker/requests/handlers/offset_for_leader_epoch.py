"""OffsetForLeaderEpoch: where an epoch ends in the leader's log, so that a client finds where its own diverged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker


def handle(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(broker, topic.topic, wish) for wish in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, wish: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.replicas.get(topic, wish.partition)
    if partition is None:
        return EpochEndOffset(partition=wish.partition, error_code=broker.replicas.why_not(topic, wish.partition))
    refusal = partition.check_leader_epoch(wish.current_leader_epoch)
    if refusal is ErrorCode.NONE and not partition.is_leader:
        refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if refusal is not ErrorCode.NONE:
        return EpochEndOffset(partition=wish.partition, error_code=refusal)
    epoch, end_offset = partition.log.end_offset_for_epoch(wish.leader_epoch)
    return EpochEndOffset(partition=wish.partition, leader_epoch=epoch, end_offset=end_offset)
