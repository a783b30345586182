"""TxnOffsetCommit (API key 28, versions 0-6; KIP-98, KIP-447, KIP-890, KIP-1319): offsets of a group in a transaction.

2: leader epochs (KIP-320) · 3: the member and its generation are checked (KIP-447) · 5: the partition that keeps the
group's offsets is added to the transaction here (KIP-890); a producer of the older protocol has added it by
AddOffsetsToTxn, which is verified · 6: topics are named by id (KIP-1319). Readers see the offsets once the transaction
is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from moldau.broker.apis.api import ABORTABLE, Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.groups.existing_partitions import add_missing, remove_missing
from moldau.broker.apis.needs import all_of, elements_rule, needs, on_group, on_transactional_id, topic_by_id
from moldau.broker.apis.parts import OFFSETS_SIZE, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.transaction_verifier import Answer, TransactionQuestion
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply
from moldau.coordinator.group.events import CommitTransactionalOffsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from moldau.protocol.refusals import refused
from moldau.replication.verification import guard_for_coordinator_batch
from moldau.security.access import AclOperation
from moldau.storage.producers.verification import VerificationGuard

Merge = Callable[[object], TxnOffsetCommitResponse]
"""Makes the response to the client from the response of the coordinator."""
NEW_PROTOCOL_VERSION: Final = 5
"""The first version in which the partition with the group's offsets is added to the transaction here."""
TOPIC_ID_VERSION: Final = 6
"""The first version in which requests name topics by id."""
COORDINATOR_ERRORS: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Errors of the transaction coordinator, with those that the client gets instead. A client would understand
NOT_COORDINATOR as an error of the group coordinator. COORDINATOR_LOAD_IN_PROGRESS makes it repeat the request."""


def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Reply[TxnOffsetCommitResponse]:
    by_id = context.version >= TOPIC_ID_VERSION
    merge: Merge = partial(add_missing, remove_missing(services.cluster, request, context.version, by_id=by_id), by_id)
    if not request.topics:
        return merge(TxnOffsetCommitResponse())
    if not request.group_id:
        return merge(refused(request, context.version, ErrorCode.INVALID_GROUP_ID))
    index = services.groups.partition_of(request.group_id)
    guard = guard_for(services, request, index, context.version)
    commit = partial(commit_offsets, services, context.version, request, index, guard, merge)
    return commit() if guard is None else commit_when_verified(services, context.version, request, index, commit, merge)


def commit_offsets(
    services: Services,
    version: int,
    request: TxnOffsetCommitRequest,
    index: int,
    guard: VerificationGuard | None,
    merge: Merge,
) -> Reply[TxnOffsetCommitResponse]:
    """Submit the offsets to the state machine of the group. `index` is the partition with the group's offsets."""
    return submit_event(
        services.groups.runner_at(index),
        version,
        lambda waiter: CommitTransactionalOffsets(waiter, request, guard),
        lambda error: merge(refused(request, version, error)),
        merge,
    )


def commit_when_verified(
    services: Services,
    version: int,
    request: TxnOffsetCommitRequest,
    index: int,
    commit: Callable[[], Reply[TxnOffsetCommitResponse]],
    merge: Merge,
) -> Pending[TxnOffsetCommitResponse]:
    """Commit the offsets after the transaction coordinator has verified the transaction."""
    reply: Pending[TxnOffsetCommitResponse] = Pending(waits_for=COORDINATOR)
    partition = (GROUP_METADATA_TOPIC, index)

    def answered(answer: Answer) -> None:
        error = answer[partition]
        if error is not ErrorCode.NONE:
            reply.complete(merge(refused(request, version, COORDINATOR_ERRORS.get(error, error))))
        else:
            reply.follow(commit())

    is_added = version >= NEW_PROTOCOL_VERSION
    asked = request.transactional_id, request.producer_id, request.producer_epoch, (partition,), is_added
    services.transaction_verifier.ask(TransactionQuestion(*asked, answered))
    return reply


def guard_for(
    services: Services, request: TxnOffsetCommitRequest, index: int, version: int
) -> VerificationGuard | None:
    """The verification guard for the first offsets of a transaction. None if the transaction coordinator need not be
    asked, or if the state machine of the group is not on this broker."""
    partition = services.replicas.get(GROUP_METADATA_TOPIC, index)
    if partition is None or isinstance(services.groups.runner_at(index), ErrorCode):
        return None
    return guard_for_coordinator_batch(
        partition,
        request.producer_id,
        request.producer_epoch,
        services.environment.wall_ms(),
        supports_epoch_bump=version >= NEW_PROTOCOL_VERSION,
    )


API: Final = Api(
    TxnOffsetCommitRequest,
    broker=handle,
    needs=all_of(
        needs(on_transactional_id, AclOperation.WRITE, "transactional_id"),
        needs(on_group, AclOperation.READ, "group_id"),
        elements_rule("topics", "topics", topic_by_id(AclOperation.READ, TOPIC_ID_VERSION)),
    ),
    lists=[in_parts("topics.partitions", size=OFFSETS_SIZE)],
    errors_before={5: {**ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}},
)
