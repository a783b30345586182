"""AddOffsetsToTxn (API key 25, versions 0-4; KIP-98): adds the partition that keeps a group's offsets to a transaction.

2: PRODUCER_FENCED · 4: TRANSACTION_ABORTABLE (KIP-890). Producers of the older protocol send it before TxnOffsetCommit.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import ABORTABLE, FENCED, Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import all_of, needs, on_group, on_transactional_id
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.transaction.events import OLD_PROTOCOL, AddPartitions
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.security.access import AclOperation


def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Reply[AddOffsetsToTxnResponse]:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    partition = (GROUP_METADATA_TOPIC, services.groups.partition_of(request.group_id))
    return submit_event(
        services.transactions.runner_of(request.transactional_id),
        context.version,
        lambda waiter: AddPartitions(waiter, *producer, (partition,), OLD_PROTOCOL),
        lambda error: AddOffsetsToTxnResponse(error_code=error),
        response_of,
    )


def response_of(error: object) -> AddOffsetsToTxnResponse:
    assert isinstance(error, ErrorCode)
    return AddOffsetsToTxnResponse(error_code=error)


API: Final = Api(
    AddOffsetsToTxnRequest,
    broker=handle,
    needs=all_of(
        needs(on_transactional_id, AclOperation.WRITE, "transactional_id"),
        needs(on_group, AclOperation.READ, "group_id"),
    ),
    errors_before={2: FENCED, 4: ABORTABLE},
)
