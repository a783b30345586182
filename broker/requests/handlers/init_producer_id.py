"""InitProducerId: an id for an idempotent producer, from the block that this broker leases of the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker

NONE: Final = -1


def handle(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    if request.transactional_id == "" or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE)
    if request.transactional_id is not None:
        # DIVERGES: Apache Kafka coordinates transactions. Until this server does, a transactional producer is refused
        # for good: this code is one that every client treats as fatal and shows.
        return InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_id=NONE, producer_epoch=NONE
        )
    reply: Pending[InitProducerIdResponse] = Pending()
    broker.producer_ids.next(
        lambda error, producer_id: reply.complete(
            InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=NONE if error else 0)
        )
    )
    return reply
