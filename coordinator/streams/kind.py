"""The row of streams groups in the table of kinds."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.events import Join
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
from moldau.coordinator.group.target import TargetComputed
from moldau.coordinator.streams import membership
from moldau.coordinator.streams.commit import commit_offsets, commit_transactional_offsets, fetch_refusal
from moldau.coordinator.streams.describe import describe_group
from moldau.coordinator.streams.events import DescribeStreamsGroup, StreamsHeartbeat
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.heartbeat import heartbeat
from moldau.coordinator.streams.records import RECORDS
from moldau.coordinator.streams.replay import replay
from moldau.coordinator.streams.target import target_computed
from moldau.protocol.errors import ErrorCode


def timer(step: GroupStep, group: Group, key: TimerKey) -> None:
    assert isinstance(group, StreamsGroup)
    membership.timer_fired(step, group, key)


def refusal_of_fetch(group: Group, member_id: str | None, epoch: int) -> ErrorCode:
    assert isinstance(group, StreamsGroup)
    return fetch_refusal(group, member_id, epoch)


STREAMS: Final = GroupKind(
    group=StreamsGroup,
    requests={
        Join: on_request(Join, StreamsGroup, membership.join_classic),
        CommitOffsets: on_request(CommitOffsets, StreamsGroup, commit_offsets),
        CommitTransactionalOffsets: on_request(CommitTransactionalOffsets, StreamsGroup, commit_transactional_offsets),
        TargetComputed: on_request(TargetComputed, StreamsGroup, target_computed),
    },
    # A heartbeat decides itself about groups of any kind: it creates a group, or takes the place of a classic one.
    first_requests={
        StreamsHeartbeat: on_first_request(StreamsHeartbeat, heartbeat),
        DescribeStreamsGroup: on_first_request(DescribeStreamsGroup, describe_group),
    },
    records=RECORDS,
    replay=replay,
    timer_fired=timer,
    loaded=on_event(StreamsGroup, membership.loaded),
    unloaded=on_event(StreamsGroup, membership.unloaded),
    fetch_refusal=refusal_of_fetch,
)
