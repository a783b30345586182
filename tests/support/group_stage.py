"""A shard of the group coordinator on a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.image import NO_METADATA, CoordinatorImage
from moldau.coordinator.group.records import Change, OffsetChange, TransactionEnded
from moldau.coordinator.runtime.machine import Effects
from moldau.coordinator.shard.kinds import change_of
from moldau.coordinator.shard.record_reading import GroupRecordReader
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.record_builder import Record
from tests.support.machine_stage import MachineStage
from tests.support.topics_image import image_of_topics


class GroupStage(MachineStage[GroupShard]):
    def __init__(self, config: GroupConfig | None = None, image: CoordinatorImage = NO_METADATA) -> None:
        self.config = config or GroupConfig()
        self.image = image
        """The cluster's metadata from now on."""
        super().__init__()

    def set_topics(self, topics: Mapping[str, int], **settings: str) -> None:
        """Publish other metadata. Settings of the groups are by Kafka's names, with `_` for `.`."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.image = image_of_topics(topics, named, self.image.version + 1)

    def new_shard(self, committed_end_offset: int) -> GroupShard:
        return GroupShard(self.config, committed_end_offset, lambda: self.image)

    def new_reader(self) -> GroupRecordReader:
        return GroupRecordReader()

    def changes_of(self, effects: Effects) -> Sequence[Change]:
        """The changes of the batch, or the one that a marker stands for."""
        transaction = effects.transaction
        if transaction is not None and transaction.end is not None:
            return [TransactionEnded(transaction.producer_id, transaction.end.is_commit)]
        changes = [change_in(record) for record in effects.records]
        if transaction is None:
            return changes
        return [
            change._replace(producer_id=transaction.producer_id) if isinstance(change, OffsetChange) else change
            for change in changes
        ]


def change_in(record: Record) -> Change:
    change = change_of(record)
    assert change is not None, "a coordinator of groups writes no record of another kind"
    return change


def classic_groups(shard: GroupShard) -> dict[str, ClassicGroup]:
    """The classic groups of a shard, by id."""
    return {name: group for name, group in shard._groups.items() if isinstance(group, ClassicGroup)}
