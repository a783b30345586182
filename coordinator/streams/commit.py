"""Decides whether a member of a streams group may commit offsets. The decision depends on the member's epoch.

A commit has the epoch of its member. An earlier epoch is accepted if the member has, or has to revoke, the task of
every partition of the commit, and got the task in that epoch or before, because the commit may have been in flight when
the epoch increased.
"""

from __future__ import annotations

from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.offsets.offset_commit import (
    MEMBER_EPOCH_VERSION,
    commit_or_refuse,
    commit_or_refuse_in_transaction,
    names_member,
    storable_partitions,
)
from moldau.coordinator.streams.group import StreamsGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


def commit_offsets(step: GroupStep, group: StreamsGroup, event: CommitOffsets) -> None:
    is_too_old = event.waiter.version < MEMBER_EPOCH_VERSION
    commit_or_refuse(step, event, commit_refusal(step, group, event.request, is_too_old=is_too_old))


def commit_transactional_offsets(step: GroupStep, group: StreamsGroup, event: CommitTransactionalOffsets) -> None:
    """Handle a TxnOffsetCommit. A request that names no member is accepted at any time."""
    error = commit_refusal(step, group, event.request) if names_member(event.request) else ErrorCode.NONE
    commit_or_refuse_in_transaction(step, event, error)


def commit_refusal(
    step: GroupStep,
    group: StreamsGroup,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    *,
    is_too_old: bool = False,
) -> ErrorCode:
    """The error of a commit, which depends on its member id and epoch; NONE if the commit is accepted. `is_too_old`:
    the request's version is too old for members of a streams group.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if is_too_old:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch or group.topology is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    subtopologies = group.topology.subtopology_of_input
    for topic, _, partition in storable_partitions(step, request):
        subtopology_id = subtopologies.get(topic, "")
        given = member.assigned.active.get(subtopology_id, {}).get(partition)
        if given is None:
            given = member.to_revoke.active.get(subtopology_id, {}).get(partition)
        if given is None or epoch < given:
            return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE


def fetch_refusal(group: StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """The error of an OffsetFetch with this member id and epoch; NONE if the fetch is accepted. A request without
    member id and epoch is accepted."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH
