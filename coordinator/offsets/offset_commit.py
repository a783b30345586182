"""OffsetCommit for every kind of group: one record for each partition.

The kind of group decides whether the member may commit (`coordinator/classic/commit.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.coordinator.group.events import CommitOffsets
from moldau.coordinator.group.records import CommittedOffset, OffsetChange
from moldau.coordinator.group.step import GroupStep
from moldau.coordinator.runtime.outcomes import ReplyWhenCommitted
from moldau.coordinator.runtime.write_errors import WRITE_ERRORS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NO_RETENTION: Final = -1
"""The retention in a request that leaves it to the broker."""
COMMIT_ERRORS: Final = {
    **WRITE_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def store_offsets(step: GroupStep, event: CommitOffsets) -> None:
    """Write the offsets of an accepted commit. The response is sent once they are committed."""
    request = event.request
    response = write_offsets(step, request)
    if step.changes:
        step.when_committed(ReplyWhenCommitted(event.waiter, response, partial(refused_by_the_log, request)))
    else:
        step.reply(event.waiter, response)


def write_offsets(step: GroupStep, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Write one record for each partition whose metadata is short enough; the others get an error."""
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


def same_for_all(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """A response with one error for every partition of the request."""
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


def refused_by_the_log(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return same_for_all(request, COMMIT_ERRORS.get(error, error))
