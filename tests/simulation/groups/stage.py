"""A shard of the group coordinator on a drawn stage, compared with the groups that its log makes."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.runtime.machine import Effects
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.streams.group import StreamsGroup
from moldau.protocol.errors import ErrorCode
from tests.support.drawn_stage import DrawnStage
from tests.support.drawn_steps import Violation
from tests.support.group_stage import GroupStage

NOT_LOGGED: Final = (
    *("visible_from", "seen_epoch", "seen_image", "_settled", "initialized_ms", "configured", "shutdown_member_id"),
    *("endpoint_epoch", "_state", "owners"),
)
"""What a group knows that no record says, or that follows from what the records say."""


class DrawnGroupStage(DrawnStage[GroupShard], GroupStage):
    def append_error(self, effects: Effects) -> ErrorCode:
        """A log refuses the epochs of a producer that it knows to be fenced."""
        transaction = effects.transaction
        if transaction is not None and transaction.producer_epoch < self.epoch_of(transaction.producer_id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return super().append_error(effects)

    def epoch_of(self, producer_id: int) -> int:
        """The epoch of the producer as the log knows it, -1 if it knows none."""
        transactions = (batch.transaction for batch in self.log if batch.transaction is not None)
        return max((each.producer_epoch for each in transactions if each.producer_id == producer_id), default=-1)

    def compare(self) -> None:
        """Raises `Violation` if live groups differ from those that the log makes. Classic groups are ahead of it."""
        live, loaded = logged_groups(self.shard), logged_groups(self.loaded_shard(0))
        if live != loaded:
            differing = {name for name in {**live, **loaded} if live.get(name) != loaded.get(name)}
            told = [f"{live.get(name)}, from the log {loaded.get(name)}" for name in sorted(differing)]
            raise Violation(f"the groups are not what the log says: {told}")


def logged_groups(shard: GroupShard) -> dict[str, dict[str, object]]:
    """What the records say of each group that heartbeats keep up."""
    return {
        name: {field: value for field, value in vars(group).items() if field not in NOT_LOGGED}
        | {"owners": vars(group.owners) if isinstance(group, StreamsGroup) else None}
        for name, group in shard._groups.items()
        if not isinstance(group, ClassicGroup)
    }
