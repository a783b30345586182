"""Commits of offsets to groups of every kind: by OffsetCommit, or by TxnOffsetCommit in a transaction.

The kind of group decides whether the member may commit (`coordinator/classic/commit.py`). The offsets of a
TxnOffsetCommit are records in a batch of the producer's transaction, and pending until its marker (`offset_store.py`).
The log itself refuses the batch of a producer with an old epoch, and the marker of an old transaction coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets, EndOffsetsTransaction
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.history import Cause, Client
from moldau.coordinator.group.records import CommittedOffset, OffsetChange, TransactionEnded
from moldau.coordinator.runtime.machine import TransactionWrite, Waiter
from moldau.coordinator.runtime.step import WRITE_ERRORS, ReplyWhenCommitted
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_EPOCH: Final = -1
"""The generation or member epoch in a request that names none."""
MEMBER_EPOCH_VERSION: Final = 9
"""From this version of OffsetCommit on, members with epochs can commit, and the error for a group that does not exist
is GROUP_ID_NOT_FOUND."""
NO_RETENTION: Final = -1
"""The retention time in a request that leaves the retention to the broker."""
COMMIT_ERRORS: Final = {
    **WRITE_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
MEMBER_ERRORS_VERSION: Final = 6
"""From this version of TxnOffsetCommit on, clients know the errors of members of a consumer group (KIP-1319)."""
GENERATION_ERRORS: Final = {
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
}
MARKER_ERRORS: Final = {ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""The error for the transaction coordinator if the write of a marker fails, by the error of the write.

The transaction coordinator looks for the leader of the partition, not for a group coordinator, so NOT_COORDINATOR is
replaced.
"""


def names_member(request: TxnOffsetCommitRequest) -> bool:
    """Whether a TxnOffsetCommit names the member that commits. Requests before version 3 name none."""
    return (
        request.generation_id_or_member_epoch != NO_EPOCH
        or bool(request.member_id)
        or request.group_instance_id is not None
    )


def storable_partitions(
    step: GroupStep, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> Iterator[tuple[str, bytes, int]]:
    """Yield the topic name, topic id and index of each partition in a commit whose metadata is short enough to be
    stored."""
    limit = step.config.offset_metadata_max_bytes
    for topic in request.topics:
        for partition in topic.partitions:
            if len(partition.committed_metadata or "") <= limit:
                yield topic.name, topic.topic_id, partition.partition_index


def commit_or_refuse(step: GroupStep, event: CommitOffsets, error: ErrorCode) -> None:
    """Write the offsets of a commit if `error` is NONE, and respond once they are committed. Otherwise respond with the
    error."""
    request = event.request
    if error is not ErrorCode.NONE:
        add_commit_refusal_to_history(step, request, error)
        step.reply(event.waiter, commit_response_with_error(request, error))
        return
    response = write_offsets(step, request)
    if step.changes:
        step.when_committed(ReplyWhenCommitted(event.waiter, response, partial(refused_commit_response, request)))
    else:
        step.reply(event.waiter, response)


def add_commit_refusal_to_history(
    step: GroupStep, request: OffsetCommitRequest | TxnOffsetCommitRequest, error: ErrorCode
) -> None:
    """Add the refusal of a commit to the history of its group, if the group exists."""
    if request.group_id in step.groups:
        step.add_to_history(request.group_id, Cause.COMMIT_REFUSED, Client(request.member_id), detail=error.name)


def write_offsets(step: GroupStep, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Write one record for each partition of a commit whose metadata is short enough. Returns the response, in which
    the other partitions have an error."""
    retention_ms = request.retention_time_ms
    expire_ms = None if retention_ms == NO_RETENTION else step.wall_ms + retention_ms
    response = OffsetCommitResponse()
    for topic in request.topics:
        results = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if len(partition.committed_metadata or "") > step.config.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = committed_offset(partition, step.wall_ms, expire_ms, topic.topic_id)
                step.write(OffsetChange(request.group_id, topic.name, partition.partition_index, committed))
            results.partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
        response.topics.append(results)
    return response


def committed_offset(
    partition: OffsetCommitRequestPartition, wall_ms: int, expire_ms: int | None, topic_id: bytes
) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        wall_ms,
        expire_ms,
        topic_id,
    )


def commit_response_with_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The OffsetCommit response with one error for every partition of the request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_commit_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return commit_response_with_error(request, COMMIT_ERRORS.get(error, error))


def commit_or_refuse_in_transaction(step: GroupStep, event: CommitTransactionalOffsets, error: ErrorCode) -> None:
    """Write the offsets of a TxnOffsetCommit if `error` is NONE, and respond once the records are committed in the log.

    Otherwise respond with the error. Older clients do not know the errors for a wrong member epoch and a missing group,
    and get the error for a wrong generation.
    """
    request = event.request
    if error is not ErrorCode.NONE:
        add_commit_refusal_to_history(step, request, error)
        known = error if event.waiter.version >= MEMBER_ERRORS_VERSION else GENERATION_ERRORS.get(error, error)
        step.reply(event.waiter, transactional_response_with_error(request, known))
        return
    response = write_transactional_offsets(step, request)
    if step.changes:
        step.transaction = TransactionWrite(request.producer_id, request.producer_epoch, guard=event.guard)
        step.when_committed(
            ReplyWhenCommitted(event.waiter, response, partial(refused_transactional_commit_response, request))
        )
    else:
        step.reply(event.waiter, response)


def write_transactional_offsets(step: GroupStep, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Write one record for each partition of a commit whose metadata is short enough. Returns the response, in which
    the other partitions have an error."""
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        results = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            metadata = partition.committed_metadata or ""
            if len(metadata) > step.config.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    step.wall_ms,
                    topic_id=topic.topic_id,
                )
                index, producer_id = partition.partition_index, request.producer_id
                step.write(OffsetChange(request.group_id, topic.name, index, committed, producer_id))
            results.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
        response.topics.append(results)
    return response


def transactional_response_with_error(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The TxnOffsetCommit response with one error for every partition of the request."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_transactional_commit_response(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return transactional_response_with_error(request, COMMIT_ERRORS.get(error, error))


class MarkerWritten(NamedTuple):
    """The outcome of the write of a transaction marker: replies to WriteTxnMarkers."""

    waiter: Waiter

    def on_committed(self, step: GroupStep) -> None:
        step.reply(self.waiter, ErrorCode.NONE)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        step.reply(self.waiter, MARKER_ERRORS.get(error, error))


def write_transaction_marker(step: GroupStep, event: EndOffsetsTransaction) -> None:
    """Write the transaction marker, even if no group has an offset in the transaction, because the log may have records
    of the transaction."""
    step.transaction = TransactionWrite(event.producer_id, event.producer_epoch, event.end)
    step.write(TransactionEnded(event.producer_id, event.end.is_commit))
    step.when_committed(MarkerWritten(event.waiter))
