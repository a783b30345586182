"""Offsets of a classic group: whether a member may commit them, by OffsetCommit or within a producer's transaction."""

from __future__ import annotations

from moldau.coordinator.classic.group import COMMIT_ANSWERS, EMPTY, PREPARING, STABLE, ClassicGroup
from moldau.coordinator.classic.rebalance import expect_heartbeat
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.offsets.offset_commit import (
    MEMBER_EPOCH_VERSION,
    commit_or_refuse,
    commit_or_refuse_in_transaction,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.protocol.records.record_frames import is_storable


def commit_offsets(step: GroupStep, group: ClassicGroup | None, event: CommitOffsets) -> None:
    request = event.request
    error = commit_refusal(group, request, event.waiter.version)
    if error is ErrorCode.NONE:
        if group is None:
            # A consumer without a group may commit: an empty group stores its offsets.
            group = ClassicGroup(request.group_id, step.wall_ms)
            step.groups[request.group_id] = group
        if group.state in (STABLE, PREPARING):
            expect_heartbeat(step, group, group.members[request.member_id])
    commit_or_refuse(step, event, error)


def commit_refusal(group: ClassicGroup | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if not is_storable(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCH_VERSION else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    refusal = group.member_error(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    return COMMIT_ANSWERS[group.state] if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def commit_transactional_offsets(
    step: GroupStep, group: ClassicGroup | None, event: CommitTransactionalOffsets
) -> None:
    """Handle a TxnOffsetCommit.

    A group that does not exist is created by the replay of its first offset (`GroupShard.replay`). The commit does not
    prolong a session: the producer sends it, not the member.
    """
    commit_or_refuse_in_transaction(step, event, transactional_refusal(group, event.request))


def transactional_refusal(group: ClassicGroup | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """The error of a TxnOffsetCommit; NONE if the commit is accepted. A request without member id and generation, as
    all requests before version 3, is always accepted. A request with them must come from a member of the current
    generation, in any phase of a rebalance."""
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    instance_id = request.group_instance_id
    if not request.group_id or not is_storable(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.GROUP_ID_NOT_FOUND
    if generation < 0 and (group.state is EMPTY or (not member_id and instance_id is None)):
        return ErrorCode.NONE
    refusal = group.member_error(member_id, instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION
