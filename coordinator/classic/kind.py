"""The row of classic groups in the table of kinds."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.commit import commit_offsets, commit_transactional_offsets
from moldau.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.join import join, refuse_other_kind
from moldau.coordinator.classic.membership import heartbeat, leave, loaded, restore, timer_fired, unloaded
from moldau.coordinator.classic.sync import sync
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import (
    Group,
    GroupKind,
    GroupStep,
    TimerKey,
    on_event,
    on_first_request,
    on_request,
)
from moldau.coordinator.group.records import RecordChange, RecordType
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue

GROUP_METADATA: Final = RecordType(2, GroupMetadataKey, GroupMetadataValue, version=3, group_field="group")


def replay(group: Group | None, change: RecordChange, is_loaded: bool) -> Group | None:
    """Apply a generation. A live group is ahead of its record (docs/decisions/0005-groups-keep-pairs.md): there the
    record means that the generation is stored. Where a live shard has no such group, the group was of another kind.
    """
    if change.value is None:
        return None
    assert isinstance(change.value, GroupMetadataValue)
    return group if is_loaded and group is not None else restore(change.group_id, change.value)


def first_join(step: GroupStep, group: Group | None, event: Join) -> None:
    """Create the group; refuse the join where the group is of another kind."""
    if group is None:
        join(step, None, event)
    else:
        refuse_other_kind(step, event)


def timer(step: GroupStep, group: Group, key: TimerKey) -> None:
    assert isinstance(group, ClassicGroup)
    timer_fired(step, group, key)


CLASSIC: Final = GroupKind(
    group=ClassicGroup,
    requests={
        Heartbeat: on_request(Heartbeat, ClassicGroup, heartbeat),
        CommitOffsets: on_request(CommitOffsets, ClassicGroup, commit_offsets),
        CommitTransactionalOffsets: on_request(CommitTransactionalOffsets, ClassicGroup, commit_transactional_offsets),
        Join: on_request(Join, ClassicGroup, join),
        Sync: on_request(Sync, ClassicGroup, sync),
        Leave: on_request(Leave, ClassicGroup, leave),
    },
    # For the members of a group, another kind of group is as good as none. Commits of any group create a classic group,
    # which only keeps offsets.
    first_requests={
        Heartbeat: on_first_request(Heartbeat, lambda step, _group, event: heartbeat(step, None, event)),
        CommitOffsets: on_first_request(CommitOffsets, lambda step, _group, event: commit_offsets(step, None, event)),
        CommitTransactionalOffsets: on_first_request(
            CommitTransactionalOffsets, lambda step, _group, event: commit_transactional_offsets(step, None, event)
        ),
        Join: on_first_request(Join, first_join),
        Sync: on_first_request(Sync, lambda step, _group, event: sync(step, None, event)),
        Leave: on_first_request(Leave, lambda step, _group, event: leave(step, None, event)),
    },
    records=(GROUP_METADATA,),
    replay=replay,
    timer_fired=timer,
    loaded=on_event(ClassicGroup, loaded),
    unloaded=on_event(ClassicGroup, unloaded),
    is_ahead_of_log=True,
)
