"""DescribeQuorum: the leader, the voters and the observers of the metadata log, and how far each has come.

Its one partition must be all that is asked for: anything beside it makes everything unknown, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from broker.connection import RequestContext
    from broker.node import Broker

METADATA_TOPIC: Final = "__cluster_metadata"
UNKNOWN: Final = "This server does not host this topic-partition."


def handle(broker: Broker, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(METADATA_TOPIC, 0)]:
        topics = [
            ResponseTopicData(
                topic_name=topic.topic_name, partitions=[_unknown(each.partition_index) for each in topic.partitions]
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(topics=topics)
    topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[_described(broker)])
    return DescribeQuorumResponse(topics=[topic], nodes=_nodes(broker))


def _unknown(index: int) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=UNKNOWN,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
    )


def _described(broker: Broker) -> ResponsePartitionData:
    quorum = broker.quorum
    now_ms = broker.environment.wall_ms()
    voters = [
        ReplicaState(
            replica_id=voter.id,
            replica_directory_id=voter.directory_id,
            log_end_offset=quorum.log_end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter in quorum.facts.voters.by_id.values()
    ]
    return ResponsePartitionData(
        partition_index=0,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
    )


def _nodes(broker: Broker) -> list[Node]:
    return [
        Node(
            node_id=node.id,
            listeners=[Listener(name=name, host=each.host, port=each.port) for name, each in node.endpoints.items()],
        )
        for node in broker.image.cluster.controllers.values()
    ]
