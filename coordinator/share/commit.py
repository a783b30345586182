"""Offsets of a share group: it has none, its share partitions keep their own."""

from __future__ import annotations

from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.offsets.offset_commit import same_for_all, same_for_all_in_transaction
from moldau.coordinator.share.group import ShareGroup
from moldau.protocol.errors import ErrorCode


def commit_offsets(step: GroupStep, _group: ShareGroup, event: CommitOffsets) -> None:
    step.reply(event.waiter, same_for_all(event.request, ErrorCode.GROUP_ID_NOT_FOUND))


def commit_transactional_offsets(step: GroupStep, _group: ShareGroup, event: CommitTransactionalOffsets) -> None:
    step.reply(event.waiter, same_for_all_in_transaction(event.request, ErrorCode.GROUP_ID_NOT_FOUND))
