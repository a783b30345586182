"""A shard of the group coordinator on a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from moldau.coordinator.classic.events import Heartbeat
from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.group import SettledHeartbeat
from moldau.coordinator.group.image import NO_METADATA, CoordinatorImage
from moldau.coordinator.group.records import Change, OffsetChange, TransactionEnded
from moldau.coordinator.runtime.machine import Effects
from moldau.coordinator.shard.kinds import change_of
from moldau.coordinator.shard.record_reading import GroupRecordReader
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.share.events import ShareHeartbeat
from moldau.protocol.record_builder import Record
from tests.support.drawn_steps import Violation
from tests.support.machine_stage import MachineStage
from tests.support.topics_image import image_of_topics

RepeatedHeartbeat: TypeAlias = Heartbeat | ConsumerHeartbeat | ShareHeartbeat


class GroupStage(MachineStage[GroupShard]):
    """Each heartbeat that repeats the last one of its member is handled twice: as the hook of heartbeats does without
    decoding it, and by a step, which has to agree."""

    def __init__(self, config: GroupConfig | None = None, image: CoordinatorImage = NO_METADATA) -> None:
        self.config = config or GroupConfig()
        self.image = image
        """The cluster's metadata from now on."""
        self.repeated: dict[tuple[str, str], tuple[RepeatedHeartbeat, GroupShard, SettledHeartbeat]] = {}
        """The last heartbeat of each member that only prolonged its session, by group id and member id."""
        self.repeated_count = 0
        super().__init__()

    def step(self, event: Any) -> None:
        super().step(event)
        if isinstance(event, RepeatedHeartbeat):
            key = event.group_id, event.request.member_id
            self.repeated.pop(key, None)
            settled = self.shard.settled_heartbeat(event)
            if settled is not None:
                self.repeated[key] = event, self.shard, settled

    def _stepped(self, event: Any) -> Effects:
        settled = self._prolonged(event) if isinstance(event, RepeatedHeartbeat) else None
        effects = super()._stepped(event)
        if settled is not None:
            self.repeated_count += 1
            if (
                effects.has_batch
                or effects.commands
                or [each.response for each in effects.replies] != [settled.response]
            ):
                raise Violation(f"{event} was answered without a step by {settled.response}, a step says {effects}")
        return effects

    def _prolonged(self, event: RepeatedHeartbeat) -> SettledHeartbeat | None:
        """The last heartbeat of the member, if `event` is equal to it and the shard prolonged the session by it."""
        former = self.repeated.get((event.group_id, event.request.member_id))
        if former is None or former[1] is not self.shard or former[0][1:] != event[1:]:
            return None
        return former[2] if self.shard.prolong_session(former[2], self.now_ms) else None

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
