"""EndTxn (API key 26, versions 0-5; KIP-98, KIP-890): commits or aborts a transaction.

The answer says that the decision is stored, not that its markers are written. KIP-890: from version 5 on the producer's
epoch moves with every transaction, and the answer says with which producer id and epoch the producer goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.transaction.events import EndTransaction, ProducerIdAnswer
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

FENCED_VERSION: Final = 2
"""From this version on PRODUCER_FENCED is known."""
ABORTABLE_VERSION: Final = 4
"""From this version on TRANSACTION_ABORTABLE is known."""
NEW_PROTOCOL_VERSION: Final = 5
"""From this version on the epoch moves with every transaction."""
OLD_PROTOCOL: Final = 0
NEW_PROTOCOL: Final = 2


class EndTxnServices(Protocol):
    @property
    def transactions(self) -> TransactionCoordinator: ...


class Ended:
    """The token of a request: the transaction coordinator puts its result into the response."""

    def __init__(self, version: int) -> None:
        self.reply: Pending[EndTxnResponse] = Pending(waits_for=COORDINATOR)
        self._version = version

    def complete(self, response: object) -> None:
        assert isinstance(response, ProducerIdAnswer)
        error, producer_id, producer_epoch = response
        if error is ErrorCode.PRODUCER_FENCED and self._version < FENCED_VERSION:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_VERSION:
            error = ErrorCode.INVALID_TXN_STATE
        if self._version < NEW_PROTOCOL_VERSION:
            producer_id = producer_epoch = -1
        self.reply.complete(EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch))


def handle(
    services: EndTxnServices, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Pending[EndTxnResponse]:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    runner = services.transactions.runner_of(request.transactional_id)
    if isinstance(runner, ErrorCode):
        return EndTxnResponse(error_code=runner)
    ended = Ended(context.version)
    runner.submit(
        EndTransaction(
            Waiter(ended, context.version),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            NEW_PROTOCOL if context.version >= NEW_PROTOCOL_VERSION else OLD_PROTOCOL,
        )
    )
    return ended.reply
