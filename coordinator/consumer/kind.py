"""The row of consumer groups in the table of kinds."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from moldau.coordinator.consumer import leaving
from moldau.coordinator.consumer.classic_members import heartbeat_classic, join_classic, leave_classic, sync_classic
from moldau.coordinator.consumer.commit import commit_offsets, commit_transactional_offsets, fetch_refusal
from moldau.coordinator.consumer.describe import describe_group
from moldau.coordinator.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.heartbeat import heartbeat, reply_if_settled
from moldau.coordinator.consumer.records import RECORDS
from moldau.coordinator.consumer.regular_expressions import regexes_resolved
from moldau.coordinator.consumer.replay import replay
from moldau.coordinator.consumer.target import target_computed
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
from moldau.protocol.errors import ErrorCode


def timer(step: GroupStep, group: Group, key: TimerKey) -> None:
    assert isinstance(group, ConsumerGroup)
    leaving.timer_fired(step, group, key)


def refusal_of_fetch(group: Group, member_id: str | None, epoch: int) -> ErrorCode:
    assert isinstance(group, ConsumerGroup)
    return fetch_refusal(group, member_id, epoch)


CONSUMER: Final = GroupKind(
    group=ConsumerGroup,
    requests={
        Join: on_request(Join, ConsumerGroup, join_classic),
        Sync: on_request(Sync, ConsumerGroup, sync_classic),
        Heartbeat: on_request(Heartbeat, ConsumerGroup, heartbeat_classic),
        Leave: on_request(Leave, ConsumerGroup, leave_classic),
        CommitOffsets: on_request(CommitOffsets, ConsumerGroup, commit_offsets),
        CommitTransactionalOffsets: on_request(CommitTransactionalOffsets, ConsumerGroup, commit_transactional_offsets),
        TargetComputed: on_request(TargetComputed, ConsumerGroup, target_computed),
    },
    # A heartbeat decides itself about groups of any kind: it creates a group, or turns a classic one.
    first_requests={
        ConsumerHeartbeat: on_first_request(ConsumerHeartbeat, heartbeat),
        DescribeConsumerGroup: on_first_request(DescribeConsumerGroup, describe_group),
        RegexesResolved: on_first_request(RegexesResolved, regexes_resolved),
    },
    at_once={ConsumerHeartbeat: on_first_request(ConsumerHeartbeat, reply_if_settled)},
    records=RECORDS,
    replay=replay,
    timer_fired=timer,
    loaded=on_event(ConsumerGroup, leaving.loaded),
    unloaded=on_event(ConsumerGroup, leaving.unloaded),
    fetch_refusal=refusal_of_fetch,
)
