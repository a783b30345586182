"""DescribeProducers: the producers whose last batches a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft.topic_names import refusal_of_name
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker

UNKNOWN: Final = "This server does not host this topic-partition."


def handle(broker: Broker, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(broker, topic.name, i) for i in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(broker: Broker, topic: str, index: int) -> PartitionResponse:
    partition = broker.replicas.get(topic, index)
    if partition is None:
        invalid = refusal_of_name(topic)
        error = broker.replicas.why_not(topic, index) if invalid is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        text = None if topic in broker.image.topics.ids else invalid or UNKNOWN
        return PartitionResponse(partition_index=index, error_code=error, error_message=text)
    return PartitionResponse(
        partition_index=index,
        error_message=None,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1
                if producer.open_transaction_offset is None
                else producer.open_transaction_offset,
            )
            for producer in partition.log.producers.entries.values()
        ],
    )
