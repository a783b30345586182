"""EndTxn (API key 26, versions 0-5; KIP-98, KIP-890): commits or aborts a transaction.

2: PRODUCER_FENCED · 4: TRANSACTION_ABORTABLE (KIP-890) · 5: every transaction raises the producer's epoch, and the
response has the producer id and epoch for the next one (KIP-890). The response is sent when the decision is stored,
before the markers are written.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.broker.apis.api import ABORTABLE, FENCED, Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import needs, on_transactional_id
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.transaction.events import NEW_PROTOCOL, OLD_PROTOCOL, EndTransaction, ProducerIdAnswer
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.security.access import AclOperation

NEW_PROTOCOL_VERSION: Final = 5
"""The first version in which every transaction raises the producer's epoch."""


def handle(services: Services, context: RequestContext, request: EndTxnRequest) -> Reply[EndTxnResponse]:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    protocol = NEW_PROTOCOL if context.version >= NEW_PROTOCOL_VERSION else OLD_PROTOCOL
    return submit_event(
        services.transactions.runner_of(request.transactional_id),
        context.version,
        lambda waiter: EndTransaction(waiter, *producer, request.committed, protocol),
        lambda error: EndTxnResponse(error_code=error),
        partial(response_of, context.version),
    )


def response_of(version: int, answer: object) -> EndTxnResponse:
    assert isinstance(answer, ProducerIdAnswer)
    error, producer_id, producer_epoch = answer
    if version < NEW_PROTOCOL_VERSION:
        producer_id = producer_epoch = -1
    return EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch)


API: Final = Api(
    EndTxnRequest,
    broker=handle,
    needs=needs(on_transactional_id, AclOperation.WRITE, "transactional_id"),
    errors_before={2: FENCED, 4: ABORTABLE},
)
