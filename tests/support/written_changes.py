"""The changes that a step of the group shard writes, as its log returns them."""

from __future__ import annotations

from moldau.coordinator.group.records import Change, OffsetChange, TransactionEnded
from moldau.coordinator.runtime.machine import Effects
from moldau.coordinator.shard.kinds import change_of
from moldau.protocol.record_builder import Record


def written_changes(effects: Effects) -> list[Change]:
    """The changes of the batch, or the one that a marker stands for."""
    transaction = effects.transaction
    if transaction is not None and transaction.end is not None:
        return [TransactionEnded(transaction.producer_id, transaction.end.is_commit)]
    changes = [in_record(record) for record in effects.records]
    if transaction is None:
        return changes
    return [
        change._replace(producer_id=transaction.producer_id) if isinstance(change, OffsetChange) else change
        for change in changes
    ]


def in_record(record: Record) -> Change:
    change = change_of(record)
    assert change is not None, "a coordinator of groups writes no record of another kind"
    return change
