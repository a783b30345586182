"""WriteTxnMarkers (API key 27, versions 1-2; KIP-98, KIP-664, KIP-1228): writes markers into this broker's partitions.

2: a marker names the protocol of its transaction (KIP-1228). Transaction coordinators send it, and tools that abort a
hanging transaction (KIP-664). The answer says which markers are committed.

ALTER on the cluster is the right of tools that end a transaction, CLUSTER_ACTION that of brokers.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import needs_cluster, unless_permitted
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.coordinators.marker_writer import Marker, MarkerAnswers
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.runtime.machine import TransactionEnd
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.security.access import AclOperation


def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> Pending[WriteTxnMarkersResponse]:
    reply: Pending[WriteTxnMarkersResponse] = Pending(waits_for=COORDINATOR)
    answers = MarkerAnswers(lambda errors: reply.complete(response_of(request, errors)))
    for each in request.markers:
        end = TransactionEnd(each.transaction_result, each.coordinator_epoch, each.transaction_version)
        marker = Marker(each.producer_id, each.producer_epoch, end)
        for topic in each.topics:
            for index in topic.partition_indexes:
                services.markers.write(marker, topic.name, index, answers.expect(each.producer_id, topic.name, index))
    answers.note_all_asked()
    return reply


def response_of(
    request: WriteTxnMarkersRequest, errors: dict[tuple[int, str, int], ErrorCode]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=errors[marker.producer_id, topic.name, index]
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


API: Final = Api(
    WriteTxnMarkersRequest,
    broker=handle,
    needs=unless_permitted(AclOperation.ALTER, needs_cluster(AclOperation.CLUSTER_ACTION)),
    lists=[in_parts("markers.topics.partition_indexes", "markers.topics.partitions")],
)
