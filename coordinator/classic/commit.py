"""OffsetCommit to a classic group: from a member, or from a consumer that has no group and only stores its offsets."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import COMMIT_ANSWERS, EMPTY, PREPARING, STABLE
from moldau.coordinator.classic.sessions import expect_heartbeat
from moldau.coordinator.group.events import CommitOffsets
from moldau.coordinator.group.step import GroupStep
from moldau.coordinator.offsets.offset_commit import same_for_all, store_offsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.records.record_frames import is_storable

MEMBER_EPOCH_VERSION: Final = 9
"""From this version of OffsetCommit on, a group that does not exist is GROUP_ID_NOT_FOUND."""


def commit_offsets(step: GroupStep, group: ClassicGroup | None, event: CommitOffsets) -> None:
    request = event.request
    error = refusal_of(group, request, event.waiter.version)
    if error is not ErrorCode.NONE:
        step.reply(event.waiter, same_for_all(request, error))
        return
    if group is None:
        # A consumer without a group may commit: an empty group stores its offsets.
        group = ClassicGroup(request.group_id, step.wall_ms)
        step.groups[request.group_id] = group
    if group.state in (STABLE, PREPARING):
        expect_heartbeat(step, group, group.members[request.member_id])
    store_offsets(step, event)


def refusal_of(group: ClassicGroup | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
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
