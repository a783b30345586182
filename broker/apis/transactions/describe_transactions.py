"""DescribeTransactions (API key 65, version 0; KIP-664): the state of transactions that this broker coordinates."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import Answer, all_of, change_response, each_in, on_topic, on_transactional_id
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from moldau.security.access import AclOperation


def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    states = [describe_transaction(services.transactions, each) for each in dict.fromkeys(request.transactional_ids)]
    return DescribeTransactionsResponse(transaction_states=states)


def describe_transaction(transactions: TransactionCoordinator, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST, transactional_id=transactional_id)
    runner = transactions.runner_of(transactional_id)
    found = runner if isinstance(runner, ErrorCode) else runner.shard.describe(transactional_id)
    if isinstance(found, ErrorCode):
        return TransactionState(error_code=found, transactional_id=transactional_id)
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for name, index in found.partitions:
        topics[name].append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


def without_hidden_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A rule: topics that the client may not describe are removed from the transactions in the response."""
    access = context.access

    def hide(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                each for each in state.topics if on_topic(AclOperation.DESCRIBE, each.topic).is_met_quietly(access)
            ]
        return response

    return change_response(answer(context, request), hide)


API: Final = Api(
    DescribeTransactionsRequest,
    broker=handle,
    needs=all_of(
        each_in("transactional_ids", on_transactional_id, AclOperation.DESCRIBE, None, results="transaction_states"),
        without_hidden_topics,
    ),
    lists=[in_parts("transactional_ids", "transaction_states", is_distinct=True)],
)
