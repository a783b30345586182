"""TxnOffsetCommit (API key 28, versions 0-6; KIP-98, KIP-447, KIP-890, KIP-1319): offsets of a group in a transaction.

Readers see the offsets once the transaction is committed. KIP-447: from version 3 on the member and its generation are
checked. KIP-890: from version 5 on the partition that keeps the group's offsets is added to the transaction here; a
producer of the older protocol has added it by AddOffsetsToTxn, which is verified. KIP-1319: from version 6 on topics
are named by id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import ABORTABLE, Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import all_of, elements_rule, needs, on_group, on_transactional_id, topic_by_id
from moldau.broker.apis.parts import RECORDS_SIZE, cut
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.transaction_verifier import Answer, TransactionQuestion
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.runtime.pending import COORDINATOR, Pending, when_ready
from moldau.coordinator.group.events import CommitTransactionalOffsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.protocol.schema import ZERO_UUID
from moldau.replication.verification import coordinator_verification
from moldau.security.access import AclOperation
from moldau.storage.producers.verification import VerificationGuard

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

Merge = Callable[[object], TxnOffsetCommitResponse]
"""Makes the response of the coordinator's."""
NEW_PROTOCOL_VERSION: Final = 5
"""From this version on the partition of the group is added to the transaction."""
TOPIC_ID_VERSION: Final = 6
"""From this version on requests name topics by id."""
COORDINATOR_ERRORS: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""What the transaction coordinator answered, as the client of a group is told: a client takes NOT_COORDINATOR for the
group's coordinator, and COORDINATOR_LOAD_IN_PROGRESS has it ask again.
"""


def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    by_id = context.version >= TOPIC_ID_VERSION
    merge = partial(merged, divide(services.cluster, request, by_id=by_id), by_id)
    if not request.topics:
        return merge(TxnOffsetCommitResponse())
    index = services.groups.partition_of(request.group_id)
    guard = guard_for(services, request, index, context.version)
    if guard is None:
        return commit_offsets(services.groups, context.version, request, index, guard, merge)
    return commit_verified(services, context.version, request, index, guard, merge)


def commit_offsets(
    groups: Groups,
    version: int,
    request: TxnOffsetCommitRequest,
    index: int,
    guard: VerificationGuard | None,
    merge: Merge,
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """`index`: the partition that keeps the group's offsets."""
    return submit_event(
        groups.shards.runner_at(index),
        version,
        lambda waiter: CommitTransactionalOffsets(waiter, request, guard),
        lambda error: merge(same_for_all(request, error)),
        merge,
    )


def commit_verified(
    services: Services,
    version: int,
    request: TxnOffsetCommitRequest,
    index: int,
    guard: VerificationGuard,
    merge: Merge,
) -> Pending[TxnOffsetCommitResponse]:
    """Commit the offsets once the transaction coordinator has confirmed the transaction."""
    reply: Pending[TxnOffsetCommitResponse] = Pending(waits_for=COORDINATOR)
    partition = (GROUP_METADATA_TOPIC, index)

    def verified(answer: Answer) -> None:
        error = answer[partition]
        if error is not ErrorCode.NONE:
            reply.complete(merge(same_for_all(request, COORDINATOR_ERRORS.get(error, error))))
        else:
            when_ready(commit_offsets(services.groups, version, request, index, guard, merge), reply.complete)

    services.transaction_verifier.ask(
        TransactionQuestion(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (partition,),
            version >= NEW_PROTOCOL_VERSION,
            verified,
        )
    )
    return reply


def merged(refused: list[TxnOffsetCommitResponseTopic], by_id: bool, response: object) -> TxnOffsetCommitResponse:
    """The response: the coordinator's results beside those of partitions that do not exist."""
    assert isinstance(response, TxnOffsetCommitResponse)
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in response.topics:
        if not by_id:
            topic.topic_id = ZERO_UUID
        before = topics.setdefault((topic.name, topic.topic_id), topic)
        if before is not topic:
            before.partitions.extend(topic.partitions)
    return TxnOffsetCommitResponse(topics=list(topics.values()))


def divide(cluster: ClusterView, request: TxnOffsetCommitRequest, *, by_id: bool) -> list[TxnOffsetCommitResponseTopic]:
    """Leave the partitions that exist in the request. Returns the results of the others."""
    refused: list[TxnOffsetCommitResponseTopic] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        accept(cluster, topic, by_id, accepted, refused)
    request.topics = accepted
    return refused


def guard_for(
    services: Services, request: TxnOffsetCommitRequest, index: int, version: int
) -> VerificationGuard | None:
    """The guard with which the log appends the first offsets of a transaction; None if the coordinator need not be
    asked, or the group is not here.
    """
    partition = services.replicas.get(GROUP_METADATA_TOPIC, index)
    if partition is None or isinstance(services.groups.shards.runner_at(index), ErrorCode):
        return None
    return coordinator_verification(
        partition,
        request.producer_id,
        request.producer_epoch,
        services.environment.wall_ms(),
        supports_epoch_bump=version >= NEW_PROTOCOL_VERSION,
    )


def accept(
    cluster: ClusterView,
    topic: TxnOffsetCommitRequestTopic,
    by_id: bool,
    accepted: list[TxnOffsetCommitRequestTopic],
    refused: list[TxnOffsetCommitResponseTopic],
) -> None:
    """Divide the partitions of a topic: those that exist, under its name and id, and those that do not."""
    topics = cluster.image.topics
    known = topics.by_id.get(topic.topic_id) if by_id else topics.by_name(topic.name)
    existing = () if known is None else known.partitions
    missing = [each.partition_index for each in topic.partitions if each.partition_index not in existing]
    if missing:
        error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = topic.name if not by_id else "" if known is None else known.name
        named = TxnOffsetCommitRequestTopic(name=name, topic_id=topic.topic_id)
        refused.append(refused_topic(named, missing, error))
    found = [each for each in topic.partitions if each.partition_index in existing]
    if known is not None and found:
        accepted.append(TxnOffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=found))


def refused_topic(
    topic: TxnOffsetCommitRequestTopic, indexes: list[int], error: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    partitions = [TxnOffsetCommitResponsePartition(partition_index=index, error_code=error) for index in indexes]
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def same_for_all(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition of the request."""
    return TxnOffsetCommitResponse(
        topics=[
            refused_topic(topic, [each.partition_index for each in topic.partitions], error) for topic in request.topics
        ]
    )


API: Final = Api(
    TxnOffsetCommitRequest,
    broker=handle,
    needs=all_of(
        needs(on_transactional_id, AclOperation.WRITE, "transactional_id"),
        needs(on_group, AclOperation.READ, "group_id"),
        elements_rule("topics", "topics", topic_by_id(AclOperation.READ, TOPIC_ID_VERSION)),
    ),
    lists=[cut("topics.partitions", size=RECORDS_SIZE)],
    errors_before={5: {**ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}},
)
