"""The group kind of classic groups: passes each request, record and timer to the function that handles it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, get_args

from moldau.coordinator.classic import membership
from moldau.coordinator.classic.commit import commit_offsets, commit_transactional_offsets
from moldau.coordinator.classic.events import ClassicTimer, Heartbeat, Join, Leave, Sync
from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.join import join_group, refuse_other_kind
from moldau.coordinator.classic.sync import sync_group
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, RequestOfGroup, SettledHeartbeat, TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import RecordChange, RecordType
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue

GROUP_METADATA: Final = RecordType(2, GroupMetadataKey, GroupMetadataValue, version=3, group_field="group")
ClassicRequest: TypeAlias = Heartbeat | CommitOffsets | CommitTransactionalOffsets | Join | Sync | Leave


class ClassicKind(GroupKind[ClassicGroup, ClassicRequest]):
    group_class = ClassicGroup
    session_timer = ClassicTimer.SESSION
    first_requests = get_args(ClassicRequest)
    records = (GROUP_METADATA,)
    is_ahead_of_log = True

    def decide(self, step: GroupStep, group: ClassicGroup | None, event: RequestOfGroup) -> bool:
        match event:
            case Heartbeat():
                membership.heartbeat(step, group, event)
            case CommitOffsets():
                commit_offsets(step, group, event)
            case CommitTransactionalOffsets():
                commit_transactional_offsets(step, group, event)
            case Join():
                join_group(step, group, event)
            case Sync():
                sync_group(step, group, event)
            case Leave():
                membership.leave_group(step, group, event)
            case _:
                return False
        return True

    def decide_first(self, step: GroupStep, group: Group | None, event: ClassicRequest) -> None:
        """Decide on a request for a group that does not exist or is of another kind. A group of another kind refuses a
        JoinGroup. All other requests are handled as if the group did not exist.
        """
        if isinstance(event, Join) and group is not None:
            refuse_other_kind(step, event)
        else:
            self.decide(step, None, event)

    def settled_heartbeat(self, step: GroupStep, group: ClassicGroup, event: RequestOfGroup) -> SettledHeartbeat | None:
        return membership.settled_heartbeat(step, group, event) if isinstance(event, Heartbeat) else None

    def is_settled(self, group: ClassicGroup, heartbeat: SettledHeartbeat) -> bool:
        return membership.is_still_settled(group, heartbeat)

    def replay(self, group: ClassicGroup | None, change: RecordChange, is_loaded: bool) -> ClassicGroup | None:
        """The group after the replay of a record of its generation; None for a tombstone.

        While the shard loads, the group is restored from the record. In a loaded shard a classic group stays as it is,
        because classic groups change before their record is written (docs/decisions/0005-groups-keep-pairs.md). If a
        loaded shard has no classic group of this id, the group was of another kind, and is restored from the record.
        """
        if change.value is None:
            return None
        assert isinstance(change.value, GroupMetadataValue)
        return group if is_loaded and group is not None else membership.group_of_record(change.group_id, change.value)

    def on_timer(self, step: GroupStep, group: ClassicGroup, key: TimerKey) -> None:
        membership.on_timer(step, group, key)

    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: ClassicGroup
    ) -> Iterator[tuple[str, int]]:
        for member_id, member in group.members.items():
            yield member_id, member.session_timeout_ms

    def on_loaded(self, step: GroupStep, group: ClassicGroup) -> None:
        membership.on_loaded(step, group)

    def on_unloaded(self, step: GroupStep, group: ClassicGroup) -> None:
        membership.on_unloaded(step, group)


CLASSIC: Final = ClassicKind()
