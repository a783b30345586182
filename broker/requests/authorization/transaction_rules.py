"""Rules of the APIs of transactions and of idempotent producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.requests.authorization.rule import (
    Answer,
    all_of,
    change_response,
    cluster,
    each_in,
    elements_rule,
    group,
    needs,
    on_cluster,
    topic,
    topic_by_id,
    transactional_id,
    unless,
    visible,
)
from moldau.broker.requests.authorization.topic_rules import is_internal
from moldau.broker.requests.handlers.add_partitions_to_txn import BATCH_VERSION, partitions_of, results_of
from moldau.broker.requests.handlers.txn_offset_commit import TOPIC_ID_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from moldau.protocol.messages.describe_transactions import DescribeTransactionsResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services

FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def init_producer_id(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """WRITE on the transactional id. Without one: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
    assert isinstance(request, InitProducerIdRequest)
    access = context.access
    if request.transactional_id is not None:
        if not transactional_id(AclOperation.WRITE, request.transactional_id).is_met(access):
            return refused(request, context.version, FAILED)
    elif not cluster(AclOperation.IDEMPOTENT_WRITE).is_met_quietly(access) and not access.allows_for_any(
        AclOperation.WRITE, ResourceKind.TOPIC
    ):
        return refused(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return answer(context, request)


def add_partitions(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """In the versions for brokers (4 and later) CLUSTER_ACTION; in those for clients WRITE on the transactional id and
    on each topic. Where one topic is refused, none is added.
    """
    assert isinstance(request, AddPartitionsToTxnRequest)
    access = context.access
    if context.version >= BATCH_VERSION:
        if cluster(AclOperation.CLUSTER_ACTION).is_met(access):
            return answer(context, request)
        return refused(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    partitions = partitions_of(request.v3_and_below_topics)
    if not transactional_id(AclOperation.WRITE, request.v3_and_below_transactional_id).is_met(access):
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results_of(dict.fromkeys(partitions, FAILED)))
    names = dict.fromkeys(name for name, _ in partitions)
    denied = {name for name in names if is_internal(name) or not topic(AclOperation.WRITE, name).is_met(access)}
    if not denied:
        return answer(context, request)
    topics = services.cluster.image.topics

    def error_of(name: str, index: int) -> ErrorCode:
        if name in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topics.partition(name, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    errors = {each: error_of(*each) for each in partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results_of(errors))


PRODUCER: Final = needs(transactional_id, AclOperation.WRITE, "transactional_id")
GROUP: Final = needs(group, AclOperation.READ, "group_id")
ADD_OFFSETS: Final = all_of(PRODUCER, GROUP)
END_TRANSACTION: Final = PRODUCER
COMMIT_OFFSETS: Final = all_of(
    PRODUCER, GROUP, elements_rule("topics", "topics", topic_by_id(AclOperation.READ, TOPIC_ID_VERSION))
)
WRITE_MARKERS: Final = unless(AclOperation.ALTER, on_cluster(AclOperation.CLUSTER_ACTION))
"""ALTER is that of tools that end a transaction, CLUSTER_ACTION that of brokers."""


def without_hidden_topics(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The response names only the topics of a transaction that the client may describe."""
    access = context.access

    def hide(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                each for each in state.topics if topic(AclOperation.DESCRIBE, each.topic).is_met_quietly(access)
            ]
        return response

    return change_response(answer(context, request), hide)


DESCRIBE_TRANSACTIONS: Final = all_of(
    each_in("transactional_ids", transactional_id, AclOperation.DESCRIBE, None, results="transaction_states"),
    without_hidden_topics,
)
LIST_TRANSACTIONS: Final = visible("transaction_states", transactional_id, AclOperation.DESCRIBE, "transactional_id")
