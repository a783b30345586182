"""OffsetForLeaderEpoch (API key 23, versions 2-4; KIP-101, KIP-279, KIP-320): finds where an epoch ends in the leader's
log.

2: the leader epoch that the client knows (KIP-320) · 3: whether a broker asks. From the answer a consumer detects that
records which it has read were truncated. A follower does not send this request, because the response to its Fetch has
the diverging epoch (KIP-595).

Brokers need CLUSTER_ACTION, consumers DESCRIBE on each topic.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import each_in, on_topic, unless_permitted
from moldau.broker.apis.parts import LIGHT_SIZE, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from moldau.security.access import AclOperation


def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(services, topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(services: Services, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    index = requested.partition
    partition = services.replicas.find((topic, index))
    if partition is None:
        return EpochEndOffset(partition=index, error_code=services.replicas.error_of(topic, index))
    refusal = partition.check_leader_epoch(requested.current_leader_epoch)
    if refusal is ErrorCode.NONE and not partition.is_leader:
        refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if refusal is not ErrorCode.NONE:
        return EpochEndOffset(partition=index, error_code=refusal)
    epoch, end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
    return EpochEndOffset(partition=index, leader_epoch=epoch, end_offset=end_offset)


API: Final = Api(
    OffsetForLeaderEpochRequest,
    broker=handle,
    needs=unless_permitted(AclOperation.CLUSTER_ACTION, each_in("topics", on_topic, AclOperation.DESCRIBE, "topic")),
    lists=[in_parts("topics.partitions", size=LIGHT_SIZE)],
)
