"""The group kind of share groups: passes each request, record and timer to the function that handles it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, get_args

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, RequestOfGroup, SettledHeartbeat, TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.group.target import TargetComputed
from moldau.coordinator.offsets.offset_commit import commit_response_with_error, transactional_response_with_error
from moldau.coordinator.share import heartbeat, offsets, replay
from moldau.coordinator.share.describe import describe_group
from moldau.coordinator.share.events import (
    AlterOffsets,
    DeleteOffsets,
    DeleteStates,
    DescribeShareGroup,
    ListStates,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
)
from moldau.coordinator.share.group import ShareGroup, ShareTimer
from moldau.coordinator.share.heartbeat import is_still_settled, settled_heartbeat
from moldau.coordinator.share.records import RECORDS
from moldau.coordinator.share.state_topics import on_states_initialized, on_topics_deleted
from moldau.coordinator.share.target import on_target_computed
from moldau.protocol.errors import ErrorCode

ShareRequest: TypeAlias = (
    ShareHeartbeat
    | DescribeShareGroup
    | StatesInitialized
    | ListStates
    | AlterOffsets
    | DeleteOffsets
    | DeleteStates
    | StatesDeleted
)


class ShareKind(GroupKind[ShareGroup, ShareRequest]):
    group_class = ShareGroup
    session_timer = ShareTimer.SESSION
    first_requests = get_args(ShareRequest)
    records = RECORDS

    def decide(self, step: GroupStep, group: ShareGroup, event: RequestOfGroup) -> bool:
        """Decide on a request about a share group. Commits of offsets are refused, because a share group has no
        committed offsets: the share coordinator keeps the state of its partitions."""
        match event:
            case CommitOffsets():
                step.reply(event.waiter, commit_response_with_error(event.request, ErrorCode.GROUP_ID_NOT_FOUND))
            case CommitTransactionalOffsets():
                refused = transactional_response_with_error(event.request, ErrorCode.GROUP_ID_NOT_FOUND)
                step.reply(event.waiter, refused)
            case TargetComputed():
                on_target_computed(step, group, event)
            case _:
                return False
        return True

    def decide_first(self, step: GroupStep, group: Group | None, event: ShareRequest) -> None:
        """Decide on a request of the share group protocol. Each handler checks whether the group is a share group."""
        match event:
            case ShareHeartbeat():
                heartbeat.heartbeat(step, group, event)
            case DescribeShareGroup():
                describe_group(step, group, event)
            case StatesInitialized():
                on_states_initialized(step, group, event)
            case ListStates():
                offsets.list_states(step, group, event)
            case AlterOffsets():
                offsets.alter_offsets(step, group, event)
            case DeleteOffsets():
                offsets.delete_offsets(step, group, event)
            case DeleteStates():
                offsets.delete_states(step, group, event)
            case StatesDeleted():
                offsets.on_states_deleted(step, group, event)

    def settled_heartbeat(self, step: GroupStep, group: ShareGroup, event: RequestOfGroup) -> SettledHeartbeat | None:
        return settled_heartbeat(step, group, event) if isinstance(event, ShareHeartbeat) else None

    def is_settled(self, group: ShareGroup, heartbeat: SettledHeartbeat) -> bool:
        return is_still_settled(group, heartbeat)

    def replay(self, group: ShareGroup | None, change: RecordChange, is_loaded: bool) -> ShareGroup | None:
        return replay.replay(group, change, is_loaded)

    def on_timer(self, step: GroupStep, group: ShareGroup, key: TimerKey) -> None:
        heartbeat.on_timer(step, group, key)

    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: ShareGroup
    ) -> Iterator[tuple[str, int]]:
        timeout_ms = config.share.of_group(image.group_settings(group.group_id)).session_timeout_ms
        for member_id in group.members:
            yield member_id, timeout_ms

    def on_loaded(self, step: GroupStep, group: ShareGroup) -> None:
        heartbeat.on_loaded(step, group)

    def on_topics_deleted(self, step: GroupStep, group: ShareGroup, topic_ids: frozenset[bytes]) -> None:
        on_topics_deleted(step, group, topic_ids)


SHARE: Final = ShareKind()
