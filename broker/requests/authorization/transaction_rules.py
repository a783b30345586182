"""Rules of the APIs of transactions and of idempotent producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.requests.authorization.rule import (
    Answer,
    ElementsRule,
    Rule,
    change_response,
    cluster,
    group,
    only_visible,
    topic,
    transactional_id,
    with_field,
)
from moldau.broker.requests.authorization.topic_rules import is_internal
from moldau.broker.requests.handlers.add_partitions_to_txn import BATCH_VERSION, partitions_of, results_of
from moldau.broker.requests.handlers.init_producer_id import refused as no_producer_id
from moldau.broker.requests.handlers.txn_offset_commit import TOPIC_ID_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from moldau.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_transactions import TransactionState as ListedTransaction
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
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
            return no_producer_id(FAILED)
    elif not cluster(AclOperation.IDEMPOTENT_WRITE).is_met_quietly(access) and not access.allows_for_any(
        AclOperation.WRITE, ResourceKind.TOPIC
    ):
        return no_producer_id(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
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
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    partitions = partitions_of(request.v3_and_below_topics)
    if not transactional_id(AclOperation.WRITE, request.v3_and_below_transactional_id).is_met(access):
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results_of(dict.fromkeys(partitions, FAILED)))
    names = dict.fromkeys(name for name, _ in partitions)
    refused = {name for name in names if is_internal(name) or not topic(AclOperation.WRITE, name).is_met(access)}
    if not refused:
        return answer(context, request)
    topics = services.cluster.image.topics

    def error_of(name: str, index: int) -> ErrorCode:
        if name in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topics.partition(name, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    errors = {each: error_of(*each) for each in partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results_of(errors))


def add_offsets(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """WRITE on the transactional id, and READ on the group."""
    assert isinstance(request, AddOffsetsToTxnRequest)
    if not transactional_id(AclOperation.WRITE, request.transactional_id).is_met(context.access):
        return AddOffsetsToTxnResponse(error_code=FAILED)
    if not group(AclOperation.READ, request.group_id).is_met(context.access):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return answer(context, request)


def end_transaction(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """WRITE on the transactional id."""
    assert isinstance(request, EndTxnRequest)
    if not transactional_id(AclOperation.WRITE, request.transactional_id).is_met(context.access):
        return EndTxnResponse(error_code=FAILED)
    return answer(context, request)


def write_markers(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """ALTER on the cluster for tools that end a transaction, CLUSTER_ACTION for brokers."""
    from moldau.broker.requests.handlers.write_txn_markers import response_of

    assert isinstance(request, WriteTxnMarkersRequest)
    access = context.access
    if cluster(AclOperation.ALTER).is_met_quietly(access) or cluster(AclOperation.CLUSTER_ACTION).is_met(access):
        return answer(context, request)
    errors = {
        (marker.producer_id, each.name, index): ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for marker in request.markers
        for each in marker.topics
        for index in each.partition_indexes
    }
    return response_of(request, errors)


def commit_offsets(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """WRITE on the transactional id, READ on the group and on each topic. For an unknown topic id the answer is the
    usual error, because it reveals no topic.
    """
    assert isinstance(request, TxnOffsetCommitRequest)
    access = context.access
    error = ErrorCode.NONE
    if not transactional_id(AclOperation.WRITE, request.transactional_id).is_met(access):
        error = FAILED
    elif not group(AclOperation.READ, request.group_id).is_met(access):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error is not ErrorCode.NONE:
        return TxnOffsetCommitResponse(topics=[_refused(each, error) for each in request.topics])
    allowed, refusals = [], []
    by_id = services.cluster.image.topics.by_id if context.version >= TOPIC_ID_VERSION else None
    for each in request.topics:
        known = None if by_id is None else by_id.get(each.topic_id)
        is_unknown = by_id is not None and known is None
        if is_unknown or topic(AclOperation.READ, each.name if known is None else known.name).is_met(access):
            allowed.append(each)
        else:
            refusals.append(_refused(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if not refusals:
        return answer(context, request)

    def add(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        response.topics.extend(refusals)
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), add)


def _refused(each: TxnOffsetCommitRequestTopic, error: ErrorCode) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=wish.partition_index, error_code=error)
        for wish in each.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=each.name, topic_id=each.topic_id, partitions=partitions)


def _text(element: object) -> str:
    assert isinstance(element, str)
    return element


DESCRIBED: Rule = ElementsRule(
    "transactional_ids",
    "transaction_states",
    lambda element: transactional_id(AclOperation.DESCRIBE, _text(element)),
    lambda element, error: TransactionState(error_code=error, transactional_id=_text(element)),
)


def describe_transactions(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each transactional id. The response names only the topics of a transaction that the client may
    describe.
    """
    access = context.access

    def visible(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                each for each in state.topics if topic(AclOperation.DESCRIBE, each.topic).is_met_quietly(access)
            ]
        return response

    return change_response(DESCRIBED(services, context, request, answer), visible)


def list_transactions(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """DESCRIBE on each transactional id: the response lists only the allowed ones."""
    access = context.access

    def is_visible(each: ListedTransaction) -> bool:
        return transactional_id(AclOperation.DESCRIBE, each.transactional_id).is_met_quietly(access)

    return only_visible(services, context, answer(context, request), "transaction_states", is_visible)
