"""What must hold when a group changes between the classic and the consumer protocol, by the records in its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.kind_settings import MigrationPolicy
from moldau.coordinator.group.records import Change, RecordChange
from moldau.coordinator.runtime.machine import Effects
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.offset_commit import OffsetCommitResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.records.consumer_groups import ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey
from moldau.protocol.records.offsets import GroupMetadataKey
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.drawn_stage import Asked, Watcher
from tests.support.drawn_steps import Violation
from tests.support.machine_stage import Batch

GRACE_MS: Final = 1_000
"""A timer whose write the log refused is due a little later."""
NO_EPOCH: Final = -1
"""The group has no members."""
LEAVING_MAX: Final = 1
"""The members that one event removes."""
UPGRADES: Final = (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)
"""The policies under which a living group may become a consumer group."""
DOWNGRADES: Final = (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)
"""Those under which it may become a classic one."""


class ConversionRules(Watcher):
    def __init__(self, stage: DrawnGroupStage, policy: MigrationPolicy) -> None:
        self._stage = stage
        self._policy = policy
        self._event: object = None
        self.members: frozenset[str] = frozenset()
        """The members of the group before the step."""
        self.group: Group | None = None
        """The group before the step."""
        self._epoch = NO_EPOCH
        """The last epoch or generation in the log."""
        self.offsets: dict[tuple[str, int], int] = {}
        """The last offset of each partition whose commit was answered."""
        self._open: list[Asked] = []
        """The requests without an answer."""
        self._told_ms: dict[str, int] = {}
        """When a member of the classic protocol in a consumer group was first told to rejoin."""
        self._joined_ms: dict[str, int] = {}
        """When such a member joined that has not fetched its assignment."""
        self.downgraded_generation = 0
        """The generation of the group when it last became a classic one."""
        self.upgrades = self.downgrades = 0

    def stepped(self, event: object, effects: Effects) -> None:
        self._event = event

    def settled(self, event: object) -> None:
        self._look_at_members()

    def _look_at_members(self) -> None:
        former, self.group = self.group, next(iter(self._stage.shard._groups.values()), None)
        if type(former) is not type(self.group):
            self._told_ms.clear()
            self._joined_ms.clear()
        is_known = isinstance(self.group, (ClassicGroup, ConsumerGroup))
        self.members = frozenset(self.group.members) if is_known else frozenset()  # type: ignore[union-attr]
        for times in (self._told_ms, self._joined_ms):
            for member_id in times.keys() - self.members:
                del times[member_id]

    def loaded(self) -> None:
        """Another coordinator: what was not committed may be gone."""
        self._epoch = NO_EPOCH
        for batch in self._stage.log:
            self._follow(batch.changes)
        self._open.clear()
        self._told_ms.clear()
        self._joined_ms.clear()
        self._look_at_members()

    # Requests

    def asked(self, asked: Asked) -> None:
        self._open.append(asked)

    def replied(self, asked: Asked, response: object) -> None:
        event: Any = asked.event
        match response:
            case JoinGroupResponse():
                self._told_ms.pop(event.request.member_id, None)
                self._joined_ms.pop(event.request.member_id, None)
                if response.error_code == ErrorCode.NONE:
                    self._joined_ms[response.member_id] = self._stage.now_ms
            case SyncGroupResponse() if response.error_code == ErrorCode.NONE:
                self._joined_ms.pop(event.request.member_id, None)
            case HeartbeatResponse() if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._told_ms.setdefault(event.request.member_id, self._stage.now_ms)
            case OffsetCommitResponse() if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                for topic in event.request.topics:
                    for each in topic.partitions:
                        self.offsets[topic.name, each.partition_index] = each.committed_offset

    def look(self) -> None:
        """No request is parked in a consumer group, and no member of the classic protocol takes longer than it may."""
        self._open = [each for each in self._open if not each.replies]
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        if self._open and self._stage.committed_end_offset == self._stage.end_offset:
            raise Violation(f"nothing is on its way to the log, and {self._open[0].event} has no answer")
        for what, times in (("rejoin", self._told_ms), ("fetch its assignment", self._joined_ms)):
            for member_id, since_ms in times.items() if not self._stage.manners.refuses else ():
                member = group.members.get(member_id)
                overdue_ms = self._stage.now_ms - since_ms - GRACE_MS
                if member is not None and member.classic is not None and overdue_ms > member.rebalance_timeout_ms:
                    raise Violation(f"{member_id} had to {what}, {overdue_ms} ms are over, and it is a member")

    # The log

    def check_offsets(self, found: Mapping[tuple[str, int], int]) -> None:
        lost = {key: offset for key, offset in self.offsets.items() if found.get(key, -1) < offset}
        if lost:
            raise Violation(f"the offsets {lost} were committed, and found are {found}")

    def appended(self, batch: Batch, cause: object) -> None:
        own = [change for change in batch.changes if isinstance(change, RecordChange)]
        of_classic = [change.value for change in own if isinstance(change.key, GroupMetadataKey)]
        of_epoch = [change.value for change in own if isinstance(change.key, ConsumerGroupMetadataKey)]
        members = {
            change.key.member_id
            for change in own
            if isinstance(change.key, ConsumerGroupMemberMetadataKey) and change.value is not None
        }
        if None in of_classic and any(of_epoch) and len(members) > 1:
            self.upgrades += 1
            self._check(self._policy in UPGRADES, "upgraded", self.members - members)
        values: list[Any] = [value for value in of_classic if value is not None]
        if None in of_epoch and values and values[-1].members:
            self.downgrades += 1
            self.downgraded_generation = values[-1].generation
            kept = {each.member_id for each in values[-1].members}
            self._check(self._policy in DOWNGRADES, "downgraded", self.members - kept)
        before = self._epoch
        self._follow(batch.changes)
        if NO_EPOCH < self._epoch < before and self.members:
            raise Violation(f"the epoch of the group goes from {before} to {self._epoch}")

    def _check(self, is_allowed: bool, what: str, lost: frozenset[str]) -> None:
        if not is_allowed:
            raise Violation(f"the group is {what}, and the policy is {self._policy.value}")
        if len(lost) > LEAVING_MAX:
            raise Violation(f"the group is {what} without {sorted(lost)} by {self._event}")

    def _follow(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not isinstance(change, RecordChange):
                continue
            value: Any = change.value
            if isinstance(change.key, ConsumerGroupMetadataKey):
                self._epoch = NO_EPOCH if value is None else value.epoch
            elif isinstance(change.key, GroupMetadataKey):
                self._epoch = NO_EPOCH if value is None or not value.members else value.generation
