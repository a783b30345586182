"""TxnOffsetCommit to a classic group: a producer commits the offsets of a consumer in its transaction."""

from __future__ import annotations

from coordinator.classic.group import ClassicGroup
from coordinator.classic.group_state import EMPTY
from coordinator.group.events import CommitTransactionalOffsets
from coordinator.group.records import is_storable
from coordinator.group.step import GroupStep
from coordinator.offsets.transactional_commit import same_for_all_in_transaction, store_transactional_offsets
from protocol.errors import ErrorCode
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


def commit_transactional_offsets(
    step: GroupStep, group: ClassicGroup | None, event: CommitTransactionalOffsets
) -> None:
    """A group that does not exist becomes one with its first offset (`GroupShard.replay`). The commit does not prolong
    a session: the producer sends it, not the member."""
    request = event.request
    error = refusal_of(group, request)
    if error is not ErrorCode.NONE:
        step.reply(event.waiter, same_for_all_in_transaction(request, error))
        return
    store_transactional_offsets(step, event)


def refusal_of(group: ClassicGroup | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """A producer that names neither member nor generation (before version 3 it cannot) may commit at any time; one that
    does commits for a member of the present generation, in any phase of a rebalance."""
    generation, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
    if not request.group_id or not is_storable(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and (group.state is EMPTY or (not member_id and instance_id is None)):
        return ErrorCode.NONE
    refusal = group.refusal_of(member_id, instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION
