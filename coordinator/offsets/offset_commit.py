"""OffsetCommit: a group, or somebody without one, says how far it came."""

from __future__ import annotations

from functools import partial

from coordinator.classic.group import Group
from coordinator.classic.group_state import COMMIT_ANSWERS, EMPTY, PREPARING, STABLE
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.events import CommitOffsets
from coordinator.group.records import CommittedOffset, OffsetChange, is_storable
from coordinator.group.step import WRITE_REFUSALS, ReplyWhenCommitted, Turn
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NO_RETENTION = -1
MEMBER_EPOCH_VERSION = 9
"""From this version of OffsetCommit on, an unknown group is called that."""

COMMIT_REFUSALS = {
    **WRITE_REFUSALS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def commit_offsets(turn: Turn, event: CommitOffsets) -> None:
    request = event.request
    group = turn.groups.get(request.group_id)
    error = refusal_of(group, request, event.waiter.version)
    if error is not ErrorCode.NONE:
        turn.reply(event.waiter, same_for_all(request, error))
        return
    if group is None:
        # A consumer without a group: one is made up to keep its offsets.
        group = turn.groups[request.group_id] = Group(request.group_id, turn.wall_ms)
    if group.state in (STABLE, PREPARING):
        expect_heartbeat(turn, group, group.members[request.member_id])
    response = store(turn, request)
    if turn.changes:
        turn.when_committed(ReplyWhenCommitted(event.waiter, response, partial(refused_by_the_log, request)))
    else:
        turn.reply(event.waiter, response)


def refusal_of(group: Group | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if not is_storable(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCH_VERSION else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    refusal = group.refusal_of(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    return COMMIT_ANSWERS[group.state] if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def store(turn: Turn, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """One record for each partition whose metadata is not too long."""
    retention_ms = request.retention_time_ms
    expire_ms = None if retention_ms == NO_RETENTION else turn.wall_ms + retention_ms
    response = OffsetCommitResponse()
    for topic in request.topics:
        results = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if len(partition.committed_metadata or "") > turn.config.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = committed_offset(partition, turn.wall_ms, expire_ms, topic.topic_id)
                turn.write(OffsetChange(request.group_id, topic.name, partition.partition_index, committed))
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
    """The same answer for every partition of the request."""
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
    return same_for_all(request, COMMIT_REFUSALS.get(error, error))
