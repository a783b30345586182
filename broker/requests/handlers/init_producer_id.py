"""InitProducerId (API key 22, versions 0-5; KIP-98, KIP-360): an id for an idempotent producer.

The id comes from the block that the controller has given to this broker (`broker/metadata/producer_ids.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.metadata.producer_ids import ProducerIds
from broker.requests.refused_transactions import RefusedTransactions
from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext

NONE: Final = -1


class InitProducerIdServices(Protocol):
    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def refused_transactions(self) -> RefusedTransactions: ...


def handle(
    services: InitProducerIdServices, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    if request.transactional_id == "" or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE)
    if request.transactional_id is not None:
        # DIVERGES: Apache Kafka coordinates transactions. Until this broker does, it refuses a transactional producer
        # with an error that every client treats as fatal.
        services.refused_transactions.refused(request.transactional_id, context.client_host)
        return InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_id=NONE, producer_epoch=NONE
        )
    reply: Pending[InitProducerIdResponse] = Pending()
    services.producer_ids.next(
        lambda error, producer_id: reply.complete(
            InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=NONE if error else 0)
        )
    )
    return reply
