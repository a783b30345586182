"""Deletion of offsets: OffsetDelete, DeleteGroups, topics that no longer exist, and the expiry of offsets.

A deletion also removes offsets that are pending in a transaction, so that the commit of the transaction does not
restore them. The retention of an offset begins when its group no longer needs it (`Group.retention_begins_ms`). If the
client set an expiry time, the offset expires at that time instead, provided that the group no longer needs it. While an
open transaction has an offset for the same partition, neither the offset nor its group expires.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterator
from functools import partial
from itertools import islice
from typing import Final

from moldau.coordinator.group.events import DeleteGroups, DeleteOffsets, TopicsDeleted
from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.records import OffsetChange, TopicPartition
from moldau.coordinator.offsets.offset_store import GroupOffsets, OffsetStore
from moldau.coordinator.runtime.step import ReplyWhenCommitted, write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

TOMBSTONES_MAX: Final = 5_000
"""About how many tombstones of expired offsets are written in one batch."""
EXAMINED_MAX: Final = 5_000
"""About how many offsets one step of the expiry examines, so that other requests do not wait for it."""


def delete_offsets(step: GroupStep, store: OffsetStore, event: DeleteOffsets) -> None:
    """Handle an OffsetDelete: delete the offsets of topics to which no member of the group is subscribed."""
    request = event.request
    group = step.groups.get(request.group_id)
    error = deletion_error(group, request.group_id)
    if error is not ErrorCode.NONE or group is None:
        step.reply(event.waiter, OffsetDeleteResponse(error_code=error))
        return
    latest = store.latest_offsets(request.group_id)
    response = OffsetDeleteResponse()
    for topic in request.topics:
        is_used = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else ErrorCode.NONE
        results = OffsetDeleteResponseTopic(name=topic.name)
        for partition_index in (asked.partition_index for asked in topic.partitions):
            if not is_used and latest.has((topic.name, partition_index)):
                step.write(OffsetChange(request.group_id, topic.name, partition_index, None))
            results.partitions.append(OffsetDeleteResponsePartition(partition_index=partition_index, error_code=code))
        response.topics.append(results)
    if step.changes:
        step.add_to_history(request.group_id, Cause.OFFSETS_DELETED, number=len(step.changes))
    # A request without a write waits too: the tombstone of an offset that it does not find may be uncommitted.
    step.when_committed(ReplyWhenCommitted(event.waiter, response, offsets_refused_by_the_log))


def deletion_error(group: Group | None, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_deletion_error()


def offsets_refused_by_the_log(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=write_error(error))


def delete_groups(step: GroupStep, store: OffsetStore, event: DeleteGroups) -> None:
    """Handle a DeleteGroups: delete groups without members, each with all its offsets."""
    response = DeleteGroupsResponse()
    for group_id in event.request.groups_names:
        group = step.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.deletion_error()
        if error is ErrorCode.NONE and group is not None:
            write_tombstones(step, store, group)
            step.add_to_history(group_id, Cause.DELETED)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    step.when_committed(ReplyWhenCommitted(event.waiter, response, partial(groups_refused_by_the_log, event.request)))


def write_tombstones(step: GroupStep, store: OffsetStore, group: Group) -> None:
    """Write the tombstones of a group and of all its offsets."""
    for topic, partition_index in store.latest_offsets(group.group_id).partitions():
        step.write(OffsetChange(group.group_id, topic, partition_index, None))
    step.write(*group.tombstones())


def groups_refused_by_the_log(request: DeleteGroupsRequest, error: ErrorCode) -> DeleteGroupsResponse:
    code = write_error(error)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


def on_topics_deleted(step: GroupStep, store: OffsetStore, event: TopicsDeleted) -> None:
    """Handle the deletion of topics: delete the offsets of all groups for them, in one step, because a later commit may
    be for a new topic of the same name."""
    changing = store.changing_groups()
    for group_id in store.groups():
        latest = latest_of(store, group_id, changing)
        found = [key for key in latest.partitions() if key[0] in event.topics]
        step.write(*(OffsetChange(group_id, *key, None) for key in found))
        for topic, count in Counter(topic for topic, _ in found).items():
            step.add_to_history(group_id, Cause.TOPIC_DELETED, number=count, detail=topic)


def latest_of(store: OffsetStore, group_id: str, changing: Container[str]) -> GroupOffsets:
    """The latest offsets of a group, which are copied only if the group is one of `changing`."""
    return store.latest_offsets(group_id) if group_id in changing else store.committed_offsets(group_id)


def continue_expiry(step: GroupStep, store: OffsetStore, groups_left: deque[str]) -> bool:
    """Write tombstones for the expired offsets of the next groups. Returns False if a limit was reached, so that the
    caller continues in a later step. A group with more expired offsets than one batch holds is then examined again.
    """
    changing = store.changing_groups()
    examined = 0
    while groups_left:
        room = TOMBSTONES_MAX - len(step.changes)
        if room <= 0 or examined >= EXAMINED_MAX:
            return False
        latest = latest_of(store, groups_left[0], changing)
        examined += 1 + len(latest.offsets)
        if expire_offsets(step, store, groups_left[0], latest, room) < room:
            groups_left.popleft()
    return True


def expire_offsets(step: GroupStep, store: OffsetStore, group_id: str, latest: GroupOffsets, records_max: int) -> int:
    """Write tombstones for at most `records_max` expired offsets of a group, and for the group if no offset is left.
    Returns the number of offsets."""
    group = step.groups.get(group_id)
    if group is None:
        return 0
    expired = list(islice(expired_offsets(step, group, latest), records_max))
    if expired:
        step.add_to_history(group_id, Cause.OFFSETS_EXPIRED, number=len(expired))
    if len(expired) == len(latest.offsets) and not latest.pending and group.is_empty:
        write_tombstones(step, store, group)
    else:
        step.write(*(OffsetChange(group_id, *key, None) for key in expired))
    return len(expired)


def expired_offsets(step: GroupStep, group: Group, latest: GroupOffsets) -> Iterator[TopicPartition]:
    retention_ms = step.config.offsets_retention_ms
    for (topic, partition_index), committed in latest.offsets.items():
        begins_ms = group.retention_begins_ms(committed.commit_ms)
        is_pending = (topic, partition_index) in latest.pending
        if begins_ms is None or is_pending or group.is_subscribed_to(topic):
            continue
        end_ms = begins_ms + retention_ms if committed.expire_ms is None else committed.expire_ms
        if step.wall_ms >= end_ms:
            yield topic, partition_index
