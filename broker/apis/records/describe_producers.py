"""DescribeProducers (API key 61, version 0; KIP-664): the producers in a partition's producer state.

Every broker with a replica of the partition answers, as in Apache Kafka.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import each_in, on_topic
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from moldau.security.access import AclOperation

UNKNOWN: Final = ERROR_TEXTS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def handle(services: Services, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(services, topic.name, i) for i in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(services: Services, topic: str, index: int) -> PartitionResponse:
    partition = services.replicas.get(topic, index)
    if partition is None:
        invalid = refusal_of_name(topic)
        error = services.replicas.error_of(topic, index) if invalid is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        text = None if topic in services.cluster.image.topics.ids else invalid or UNKNOWN
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
                current_txn_start_offset=producer.open_transaction_offset,
            )
            for producer in partition.log.producers.entries.values()
        ],
    )


API: Final = Api(
    DescribeProducersRequest,
    broker=handle,
    needs=each_in("topics", on_topic, AclOperation.READ),
    lists=[in_parts("topics.partition_indexes", "topics.partitions")],
)
