"""Decides whether a member of a consumer group may commit or read offsets. The decision depends on the member's epoch.

A commit has the epoch of its member. An earlier epoch is accepted if the member got every partition of the commit in
that epoch or before, and still owns it (KIP-1251), because the commit may have been in flight when the epoch increased.
"""

from __future__ import annotations

from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.member import ConsumerMember
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.offsets.offset_commit import (
    MEMBER_EPOCH_VERSION,
    commit_or_refuse,
    commit_or_refuse_in_transaction,
    names_member,
    storable_partitions,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.protocol.schema import ZERO_UUID


def commit_offsets(step: GroupStep, group: ConsumerGroup, event: CommitOffsets) -> None:
    is_too_old = event.waiter.version < MEMBER_EPOCH_VERSION
    commit_or_refuse(step, event, commit_refusal(step, group, event.request, is_too_old=is_too_old))


def commit_transactional_offsets(step: GroupStep, group: ConsumerGroup, event: CommitTransactionalOffsets) -> None:
    """Handle a TxnOffsetCommit. A request that names no member is accepted at any time."""
    error = commit_refusal(step, group, event.request) if names_member(event.request) else ErrorCode.NONE
    commit_or_refuse_in_transaction(step, event, error)


def commit_refusal(
    step: GroupStep,
    group: ConsumerGroup,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    *,
    is_too_old: bool = False,
) -> ErrorCode:
    """The error of a commit, which depends on its member id and epoch; NONE if the commit is accepted. `is_too_old`:
    the request's version is too old for members of the consumer protocol.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if is_too_old and member.classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch < member.epoch and all(
        _may_commit(member, epoch, topic_id_of(step.image, name, topic_id), partition)
        for name, topic_id, partition in storable_partitions(step, request)
    ):
        return ErrorCode.NONE
    return wrong_epoch_error(member)


def fetch_refusal(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """The error of an OffsetFetch with this member id and epoch; NONE if the fetch is accepted. A request without
    member id and epoch is accepted."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else wrong_epoch_error(member)


def wrong_epoch_error(member: ConsumerMember) -> ErrorCode:
    """The error for a wrong epoch: STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a member of the classic protocol."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _may_commit(member: ConsumerMember, epoch: int, topic_id: bytes, partition: int) -> bool:
    since = member.owned_epoch(topic_id, partition)
    return since is not None and epoch >= since


def topic_id_of(image: CoordinatorImage, name: str, topic_id: bytes) -> bytes:
    """The id of a topic in a request: `topic_id`, or the id of the topic called `name` if `topic_id` is zero. The
    result is zero if no topic has that name."""
    if topic_id != ZERO_UUID:
        return topic_id
    topic = image.topic_of_name(name)
    return ZERO_UUID if topic is None else topic.id
