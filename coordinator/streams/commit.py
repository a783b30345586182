"""Offsets of a streams group: whether a member may commit them, by its epoch.

A member commits with its epoch. A commit with an earlier one is accepted for the partitions of tasks that the member
has, or still has to revoke, and was given in that epoch or before: the commit may have been on its way while the epoch
rose.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.offsets.offset_commit import (
    same_for_all,
    same_for_all_in_transaction,
    store_offsets,
    store_transactional_offsets,
    transactional_error,
)
from moldau.coordinator.streams.group import StreamsGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

MEMBER_EPOCH_VERSION: Final = 9
"""From this version of OffsetCommit on, members of a streams group can commit."""
NO_EPOCH: Final = -1


def commit_offsets(step: GroupStep, group: StreamsGroup, event: CommitOffsets) -> None:
    request = event.request
    error = commit_refusal(
        group,
        request.member_id,
        request.generation_id_or_member_epoch,
        stored_partitions(request, step.config.offset_metadata_max_bytes),
        is_too_old=event.waiter.version < MEMBER_EPOCH_VERSION,
    )
    if error is ErrorCode.NONE:
        store_offsets(step, event)
    else:
        step.reply(event.waiter, same_for_all(request, error))


def commit_transactional_offsets(step: GroupStep, group: StreamsGroup, event: CommitTransactionalOffsets) -> None:
    """Handle a TxnOffsetCommit. A request that names no member is accepted at any time."""
    request = event.request
    error = ErrorCode.NONE
    epoch = request.generation_id_or_member_epoch
    if epoch != NO_EPOCH or request.member_id or request.group_instance_id is not None:
        error = commit_refusal(
            group,
            request.member_id,
            epoch,
            stored_partitions(request, step.config.offset_metadata_max_bytes),
        )
    error = transactional_error(error, event.waiter.version)
    if error is ErrorCode.NONE:
        store_transactional_offsets(step, event)
    else:
        step.reply(event.waiter, same_for_all_in_transaction(request, error))


def stored_partitions(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, metadata_max_bytes: int
) -> list[tuple[str, int]]:
    """The partitions, by name and index, whose metadata is not too long to be stored."""
    return [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if len(partition.committed_metadata or "") <= metadata_max_bytes
    ]


def commit_refusal(
    group: StreamsGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[str, int]],
    *,
    is_too_old: bool = False,
) -> ErrorCode:
    """The error of a commit of these partitions with this member id and epoch; NONE where it is accepted.

    `is_too_old`: the request is of a version in which members of a streams group cannot commit.
    """
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if is_too_old:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    if epoch > member.member_epoch or group.topology is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    subtopologies = group.topology.subtopology_of_input
    for topic, partition in partitions:
        subtopology_id = subtopologies.get(topic, "")
        given = member.assigned.active.get(subtopology_id, {}).get(partition)
        if given is None:
            given = member.to_revoke.active.get(subtopology_id, {}).get(partition)
        if given is None or epoch < given:
            return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE


def fetch_refusal(group: StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """The error of an OffsetFetch with this member id and epoch; NONE where it is accepted, as it is without them."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH
