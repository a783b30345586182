"""UnregisterBroker: removes a broker's registration, after other replicas have taken over its leadership."""

from __future__ import annotations

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.partitions.leadership import changes_after_loss, changes_without
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.protocol.records.metadata import UnregisterBrokerRecord


def unregister_broker(context: DecisionContext, request: UnregisterBrokerRequest) -> Decision:
    """Remove the registration of a broker.

    Other replicas become leaders of its partitions first. The broker stays in the replica lists until a reassignment
    removes it.
    """
    view = context.view
    broker = view.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        return Decision(
            (),
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            ),
        )
    leaves = changes_after_loss if view.has_eligible_replicas else changes_without
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision([*leaves(view, broker.id), record], UnregisterBrokerResponse(error_message=""), is_atomic=False)
