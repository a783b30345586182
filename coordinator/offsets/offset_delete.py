"""Forgetting offsets on demand: OffsetDelete, DeleteGroups, and topics that are gone."""

from __future__ import annotations

from functools import partial

from coordinator.classic.group import Group
from coordinator.classic.group_state import DELETE_ANSWERS
from coordinator.group.events import DeleteGroups, DeleteOffsets, TopicsDeleted
from coordinator.group.records import GroupChange, OffsetChange
from coordinator.group.step import ReplyWhenCommitted, Turn, write_refusal
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete_offsets(turn: Turn, event: DeleteOffsets) -> None:
    """Offsets of topics that the group does not use: of any group of consumers, or of one that is empty."""
    request = event.request
    group = turn.groups.get(request.group_id)
    error = refusal_of(group, request.group_id)
    if error is not ErrorCode.NONE or group is None:
        turn.reply(event.waiter, OffsetDeleteResponse(error_code=error))
        return
    offsets = turn.offsets.latest(request.group_id)
    response = OffsetDeleteResponse()
    for topic in request.topics:
        is_used = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else ErrorCode.NONE
        results = OffsetDeleteResponseTopic(name=topic.name)
        for partition_index in (asked.partition_index for asked in topic.partitions):
            if not is_used and (topic.name, partition_index) in offsets:
                turn.write(OffsetChange(request.group_id, topic.name, partition_index, None))
            results.partitions.append(OffsetDeleteResponsePartition(partition_index=partition_index, error_code=code))
        response.topics.append(results)
    # Even where it has nothing to write: what it does not find may be forgotten by what is not committed yet.
    turn.when_committed(ReplyWhenCommitted(event.waiter, response, offsets_kept_by_the_log))


def refusal_of(group: Group | None, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.is_consumer_group else DELETE_ANSWERS[group.state]


def offsets_kept_by_the_log(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=write_refusal(error))


def delete_groups(turn: Turn, event: DeleteGroups) -> None:
    """Empty groups, with all their offsets."""
    response = DeleteGroupsResponse()
    for group_id in event.request.groups_names:
        group = turn.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else DELETE_ANSWERS[group.state]
        if error is ErrorCode.NONE:
            bury(turn, group_id)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    turn.when_committed(ReplyWhenCommitted(event.waiter, response, partial(groups_kept_by_the_log, event.request)))


def bury(turn: Turn, group_id: str) -> None:
    """Tombstones for all that the log says of a group."""
    for topic, partition_index in turn.offsets.latest(group_id):
        turn.write(OffsetChange(group_id, topic, partition_index, None))
    turn.write(GroupChange(group_id, None))


def groups_kept_by_the_log(request: DeleteGroupsRequest, error: ErrorCode) -> DeleteGroupsResponse:
    code = write_refusal(error)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


def topics_deleted(turn: Turn, event: TopicsDeleted) -> None:
    """Whatever groups had committed for topics that are no more."""
    for group_id in turn.offsets.groups():
        for topic, partition_index in turn.offsets.latest(group_id):
            if topic in event.topics:
                turn.write(OffsetChange(group_id, topic, partition_index, None))
