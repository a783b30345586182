"""The row of share groups in the table of kinds."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, TimerKey, on_event, on_first_request, on_request
from moldau.coordinator.group.target import TargetComputed
from moldau.coordinator.share import heartbeat, offsets
from moldau.coordinator.share.commit import commit_offsets, commit_transactional_offsets
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
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import RECORDS
from moldau.coordinator.share.replay import replay
from moldau.coordinator.share.state_topics import states_initialized, topics_deleted
from moldau.coordinator.share.target import target_computed


def timer(step: GroupStep, group: Group, key: TimerKey) -> None:
    assert isinstance(group, ShareGroup)
    heartbeat.timer_fired(step, group, key)


def forget_topics(step: GroupStep, group: Group, topic_ids: frozenset[bytes]) -> None:
    assert isinstance(group, ShareGroup)
    topics_deleted(step, group, topic_ids)


SHARE: Final = GroupKind(
    group=ShareGroup,
    requests={
        CommitOffsets: on_request(CommitOffsets, ShareGroup, commit_offsets),
        CommitTransactionalOffsets: on_request(CommitTransactionalOffsets, ShareGroup, commit_transactional_offsets),
        TargetComputed: on_request(TargetComputed, ShareGroup, target_computed),
    },
    # These decide themselves about groups of any kind.
    first_requests={
        ShareHeartbeat: on_first_request(ShareHeartbeat, heartbeat.heartbeat),
        DescribeShareGroup: on_first_request(DescribeShareGroup, describe_group),
        StatesInitialized: on_first_request(StatesInitialized, states_initialized),
        ListStates: on_first_request(ListStates, offsets.list_states),
        AlterOffsets: on_first_request(AlterOffsets, offsets.alter_offsets),
        DeleteOffsets: on_first_request(DeleteOffsets, offsets.delete_offsets),
        DeleteStates: on_first_request(DeleteStates, offsets.delete_states),
        StatesDeleted: on_first_request(StatesDeleted, offsets.states_deleted),
    },
    records=RECORDS,
    replay=replay,
    timer_fired=timer,
    loaded=on_event(ShareGroup, heartbeat.loaded),
    unloaded=on_event(ShareGroup, heartbeat.unloaded),
    topics_deleted=forget_topics,
)
