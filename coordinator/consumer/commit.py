"""Offsets of a consumer group: whether a member may commit them or read them, by its epoch.

A member commits with its epoch. A commit with an earlier one is accepted as long as the member has got every partition
in that epoch or before, and still owns it (KIP-1251): the commit may have been on its way while the epoch rose.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.member import ConsumerMember
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.offsets.offset_commit import (
    same_for_all,
    same_for_all_in_transaction,
    store_offsets,
    store_transactional_offsets,
    transactional_error,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import ZERO_UUID

MEMBER_EPOCH_VERSION: Final = 9
"""From this version of OffsetCommit on, members of the consumer protocol can commit."""


def commit_offsets(step: GroupStep, group: ConsumerGroup, event: CommitOffsets) -> None:
    request = event.request
    limit = step.config.offset_metadata_max_bytes
    error = commit_refusal(
        group,
        request.member_id,
        request.generation_id_or_member_epoch,
        (
            (topic_id_of(step.image, topic.name, topic.topic_id), partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
            if len(partition.committed_metadata or "") <= limit
        ),
        is_too_old=event.waiter.version < MEMBER_EPOCH_VERSION,
    )
    if error is ErrorCode.NONE:
        store_offsets(step, event)
    else:
        step.reply(event.waiter, same_for_all(request, error))


def commit_transactional_offsets(step: GroupStep, group: ConsumerGroup, event: CommitTransactionalOffsets) -> None:
    """Handle a TxnOffsetCommit. A request that names no member is accepted at any time."""
    request = event.request
    epoch, limit = request.generation_id_or_member_epoch, step.config.offset_metadata_max_bytes
    error = ErrorCode.NONE
    if epoch != -1 or request.member_id or request.group_instance_id is not None:
        partitions = (
            (topic_id_of(step.image, topic.name, topic.topic_id), partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
            if len(partition.committed_metadata or "") <= limit
        )
        error = commit_refusal(group, request.member_id, epoch, partitions)
    error = transactional_error(error, event.waiter.version)
    if error is ErrorCode.NONE:
        store_transactional_offsets(step, event)
    else:
        step.reply(event.waiter, same_for_all_in_transaction(request, error))


def commit_refusal(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    *,
    is_too_old: bool = False,
) -> ErrorCode:
    """The error of a commit of these partitions (by topic id) with this member id and epoch; NONE where it is accepted.

    `is_too_old`: the request is of a version in which members of the consumer protocol cannot commit.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if is_too_old and member.classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch < member.epoch and all(_may_commit(member, epoch, topic, partition) for topic, partition in partitions):
        return ErrorCode.NONE
    return stale_error(member)


def fetch_refusal(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """The error of an OffsetFetch with this member id and epoch; NONE where it is accepted, as it is without them."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else stale_error(member)


def stale_error(member: ConsumerMember) -> ErrorCode:
    """The error for a wrong epoch, which a member of the classic protocol knows as its generation."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _may_commit(member: ConsumerMember, epoch: int, topic_id: bytes, partition: int) -> bool:
    since = member.owned_epoch(topic_id, partition)
    return since is not None and epoch >= since


def topic_id_of(image: CoordinatorImage, name: str, topic_id: bytes) -> bytes:
    """The id of a topic that a request names, if the request does not have it; zeroes where there is no such topic."""
    if topic_id != ZERO_UUID:
        return topic_id
    topic = image.topic_of_name(name)
    return ZERO_UUID if topic is None else topic.id
