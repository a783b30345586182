"""TxnOffsetCommit to a classic group: a producer commits the offsets of a consumer in its transaction."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import EMPTY
from moldau.coordinator.group.events import CommitTransactionalOffsets
from moldau.coordinator.group.records import is_storable
from moldau.coordinator.group.step import GroupStep
from moldau.coordinator.offsets.transactional_commit import same_for_all_in_transaction, store_transactional_offsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


def commit_transactional_offsets(
    step: GroupStep, group: ClassicGroup | None, event: CommitTransactionalOffsets
) -> None:
    """Handle a TxnOffsetCommit.

    A group that does not exist is created by the replay of its first offset (`GroupShard.replay`). The commit does not
    prolong a session: the producer sends it, not the member.
    """
    request = event.request
    error = refusal_of(group, request)
    if error is not ErrorCode.NONE:
        step.reply(event.waiter, same_for_all_in_transaction(request, error))
        return
    store_transactional_offsets(step, event)


def refusal_of(group: ClassicGroup | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """The error of a TxnOffsetCommit by its member id and generation; NONE where it is accepted.

    A request that names neither (before version 3 it cannot) is accepted at any time. A request that names them must be
    for a member of the current generation; the phase of the rebalance does not matter.
    """
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
