"""AddOffsetsToTxn (API key 25, versions 0-4; KIP-98): adds the partition that keeps a group's offsets to a transaction.

Producers of the older protocol send it before TxnOffsetCommit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.transaction.events import AddPartitions
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

FENCED_VERSION: Final = 2
"""From this version on PRODUCER_FENCED is known."""
ABORTABLE_VERSION: Final = 4
"""From this version on TRANSACTION_ABORTABLE is known."""
OLD_PROTOCOL: Final = 0


class AddOffsetsToTxnServices(Protocol):
    @property
    def groups(self) -> Groups: ...

    @property
    def transactions(self) -> TransactionCoordinator: ...


class Added:
    """The token of a request: the transaction coordinator puts its result into the response."""

    def __init__(self, version: int) -> None:
        self.reply: Pending[AddOffsetsToTxnResponse] = Pending(waits_for=COORDINATOR)
        self._version = version

    def complete(self, response: object) -> None:
        assert isinstance(response, ErrorCode)
        if response is ErrorCode.PRODUCER_FENCED and self._version < FENCED_VERSION:
            response = ErrorCode.INVALID_PRODUCER_EPOCH
        if response is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_VERSION:
            response = ErrorCode.INVALID_TXN_STATE
        self.reply.complete(AddOffsetsToTxnResponse(error_code=response))


def handle(
    services: AddOffsetsToTxnServices, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Pending[AddOffsetsToTxnResponse]:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    runner = services.transactions.runner_of(request.transactional_id)
    if isinstance(runner, ErrorCode):
        return AddOffsetsToTxnResponse(error_code=runner)
    added = Added(context.version)
    partition = (GROUP_METADATA_TOPIC, services.groups.partition_of(request.group_id))
    runner.submit(
        AddPartitions(
            Waiter(added, context.version),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (partition,),
            OLD_PROTOCOL,
        )
    )
    return added.reply
