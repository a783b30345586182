"""AllocateProducerIds: blocks of producer ids for brokers (KIP-730)."""

from __future__ import annotations

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.protocol.records.metadata import ProducerIdsRecord

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = (1 << 63) - 1


def allocate_producer_ids(context: DecisionContext, request: AllocateProducerIdsRequest) -> Decision:
    """Give the next block of producer ids to the broker. No block is given twice, even if the broker never uses it."""
    image = context.image
    broker = image.cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return refused(ErrorCode.STALE_BROKER_EPOCH)
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - BLOCK_SIZE:
        return refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    record = ProducerIdsRecord(broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + BLOCK_SIZE)
    return Decision([record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))


def refused(error: ErrorCode) -> Decision:
    return Decision((), AllocateProducerIdsResponse(error_code=error, producer_id_start=0, producer_id_len=0))
