"""InitProducerId (API key 22, versions 0-5; KIP-98, KIP-360, KIP-890): an id and an epoch for a producer.

3: the producer may ask for the next epoch of its own id (KIP-360) · 4: PRODUCER_FENCED · 5: TRANSACTION_ABORTABLE
(KIP-890).

An idempotent producer gets a new id from the block that the controller has given to this broker
(`broker/metadata/producer_ids.py`). A transactional producer gets the answer of its transaction coordinator, which
fences the producer that used the transactional id before, and aborts the transaction that it left open.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import FENCED, Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import Answer, on_cluster, on_transactional_id
from moldau.broker.apis.services import Services
from moldau.broker.metadata.producer_ids import ProducerIds
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply
from moldau.coordinator.transaction.events import InitProducerId, ProducerIdAnswer
from moldau.kraft.features import TRANSACTION_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.refusals import refused_with_text
from moldau.security.access import AclOperation, ResourceKind

NO_ID: Final = -1


def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> Reply[InitProducerIdResponse]:
    id_, producer = request.transactional_id, (request.producer_id, request.producer_epoch)
    if id_ == "" or (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
        return refused(ErrorCode.INVALID_REQUEST)
    if id_ is None:
        return fresh_id(services.producer_ids)
    level = services.cluster.image.features.levels.get(TRANSACTION_VERSION, 0)
    asked = id_, request.transaction_timeout_ms, *producer, level
    runner = services.transactions.runner_of(id_)
    return submit_event(runner, context.version, lambda waiter: InitProducerId(waiter, *asked), refused, response_of)


def response_of(answer: object) -> InitProducerIdResponse:
    assert isinstance(answer, ProducerIdAnswer)
    error, producer_id, producer_epoch = answer
    return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch)


def refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_ID, producer_epoch=NO_ID)


def fresh_id(producer_ids: ProducerIds) -> Pending[InitProducerIdResponse]:
    """Get a new producer id with epoch 0, for an idempotent producer."""
    reply: Pending[InitProducerIdResponse] = Pending(waits_for=COORDINATOR)
    producer_ids.give_next_id(
        lambda error, producer_id: reply.complete(
            InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=NO_ID if error else 0)
        )
    )
    return reply


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: WRITE on the transactional id. A request without one needs IDEMPOTENT_WRITE on the cluster, or WRITE on
    any topic (KIP-679)."""
    assert isinstance(request, InitProducerIdRequest)
    access = context.access
    if request.transactional_id is not None:
        if not on_transactional_id(AclOperation.WRITE, request.transactional_id).is_met(access):
            return refused_with_text(request, context.version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not on_cluster(AclOperation.IDEMPOTENT_WRITE).is_met_quietly(access) and not access.allows_for_any(
        AclOperation.WRITE, ResourceKind.TOPIC
    ):
        return refused_with_text(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return answer(context, request)


API: Final = Api(InitProducerIdRequest, broker=handle, needs=acl_rule, errors_before={4: FENCED})
