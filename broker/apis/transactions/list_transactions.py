"""ListTransactions (API key 66, versions 0-2; KIP-664, KIP-994, KIP-1152): the transactions of this coordinator.

1: only those that have run for a while (KIP-994) · 2: only transactional ids that match a regular expression
(KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most, one_pass
from moldau.broker.apis.needs import on_transactional_id, visible
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.services import Services
from moldau.broker.config.values import linear_matcher
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: ListTransactionsRequest) -> object:
    is_wanted = filter_of(request.transactional_id_pattern)
    if is_wanted is None:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return services.long_requests.answer(context, _listed(services, request, is_wanted))


def _listed(services: Services, request: ListTransactionsRequest, is_wanted: Callable[[str], object]) -> Answering:
    """List the transactions of all shards, in slices. The response is an error if a shard is loading, because its
    transactions are not known yet."""
    from moldau.coordinator.transaction.transaction import unknown_states

    response = ListTransactionsResponse(unknown_state_filters=unknown_states(request.state_filters))
    for runner in services.transactions.runners:
        if runner.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ListTransactionsResponse(error_code=runner.refusal)
        if runner.refusal is not ErrorCode.NONE:
            continue
        for entry in runner.shard.list_transactions(
            request.state_filters, request.producer_id_filters, request.duration_filter, services.environment.wall_ms()
        ):
            yield
            if entry is not None and is_wanted(entry.transactional_id):
                response.transaction_states.append(entry)
    return response


def filter_of(pattern: str | None) -> Callable[[str], object] | None:
    """Make a filter for transactional ids from a regular expression; None if RE2 cannot compile it."""
    if not pattern:
        return lambda transactional_id: True
    return linear_matcher(pattern)


API: Final = Api(
    ListTransactionsRequest,
    broker=handle,
    needs=visible("transaction_states", on_transactional_id, AclOperation.DESCRIBE, "transactional_id"),
    lists=[at_most(ENTRIES_MAX, "state_filters"), one_pass("the ids become a set", "producer_id_filters")],
)
