"""TxnOffsetCommit and the end of its transaction, in the parts that are the same for every kind of group.

The offsets of a TxnOffsetCommit are records in a batch of the producer's transaction, and pending until its marker
(`group_offsets.py`). The log itself refuses the batch of a producer with an old epoch, and the marker of an old
transaction coordinator.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from moldau.coordinator.group.events import CommitTransactionalOffsets, EndOffsetsTransaction
from moldau.coordinator.group.records import CommittedOffset, OffsetChange, TransactionEnded
from moldau.coordinator.group.step import GroupStep
from moldau.coordinator.offsets.offset_commit import COMMIT_ERRORS
from moldau.coordinator.runtime.effects import TransactionWrite, Waiter
from moldau.coordinator.runtime.outcomes import ReplyWhenCommitted
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

MARKER_ERRORS: Final = {ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""The error for the transaction coordinator, by the error of the write.

The transaction coordinator looks up the leader of the partition, not a group coordinator.
"""


def store_transactional_offsets(step: GroupStep, event: CommitTransactionalOffsets) -> None:
    """Write the offsets of an accepted TxnOffsetCommit.

    The response is sent once their records are committed in the log.
    """
    request = event.request
    response = write_transactional_offsets(step, request)
    if step.changes:
        step.transaction = TransactionWrite(request.producer_id, request.producer_epoch, guard=event.guard)
        step.when_committed(ReplyWhenCommitted(event.waiter, response, partial(refused_by_the_log, request)))
    else:
        step.reply(event.waiter, response)


def write_transactional_offsets(step: GroupStep, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Write one record for each partition whose metadata is short enough; the others get an error."""
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        results = TxnOffsetCommitResponseTopic(name=topic.name)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            metadata = partition.committed_metadata or ""
            if len(metadata) > step.config.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, step.wall_ms
                )
                index, producer_id = partition.partition_index, request.producer_id
                step.write(OffsetChange(request.group_id, topic.name, index, committed, producer_id))
            results.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
        response.topics.append(results)
    return response


def same_for_all_in_transaction(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """A response with one error for every partition of the request."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_by_the_log(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return same_for_all_in_transaction(request, COMMIT_ERRORS.get(error, error))


class MarkerWritten(NamedTuple):
    """The outcome of the write of a marker."""

    waiter: Waiter

    def committed(self, step: GroupStep) -> None:
        step.reply(self.waiter, ErrorCode.NONE)

    def failed(self, step: GroupStep, error: ErrorCode) -> None:
        step.reply(self.waiter, MARKER_ERRORS.get(error, error))


def end_transaction(step: GroupStep, event: EndOffsetsTransaction) -> None:
    """Write the marker, even if no group has an offset in the transaction: the log may have its records."""
    step.transaction = TransactionWrite(event.producer_id, event.producer_epoch, event.end)
    step.write(TransactionEnded(event.producer_id, event.end.is_commit))
    step.when_committed(MarkerWritten(event.waiter))
