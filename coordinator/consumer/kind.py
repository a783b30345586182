"""The group kind of consumer groups: passes each request, record and timer to the function that handles it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, get_args

from moldau.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from moldau.coordinator.consumer import leaving, replay
from moldau.coordinator.consumer.classic_members import heartbeat_classic, join_classic, leave_classic, sync_classic
from moldau.coordinator.consumer.commit import commit_offsets, commit_transactional_offsets, fetch_refusal
from moldau.coordinator.consumer.describe import describe_group
from moldau.coordinator.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved
from moldau.coordinator.consumer.group import ConsumerGroup, ConsumerTimer
from moldau.coordinator.consumer.heartbeat import (
    heartbeat,
    is_still_settled,
    reply_if_settled,
    settled_heartbeat,
)
from moldau.coordinator.consumer.records import RECORDS
from moldau.coordinator.consumer.regular_expressions import on_regexes_resolved
from moldau.coordinator.consumer.target import on_target_computed
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, RequestOfGroup, SettledHeartbeat, TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.group.target import TargetComputed
from moldau.protocol.errors import ErrorCode

ConsumerRequest: TypeAlias = ConsumerHeartbeat | DescribeConsumerGroup | RegexesResolved


class ConsumerKind(GroupKind[ConsumerGroup, ConsumerRequest]):
    group_class = ConsumerGroup
    session_timer = ConsumerTimer.SESSION
    first_requests = get_args(ConsumerRequest)
    requests_at_once = (ConsumerHeartbeat,)
    records = RECORDS

    def decide(self, step: GroupStep, group: ConsumerGroup, event: RequestOfGroup) -> bool:
        match event:
            case CommitOffsets():
                commit_offsets(step, group, event)
            case CommitTransactionalOffsets():
                commit_transactional_offsets(step, group, event)
            case Join():
                join_classic(step, group, event)
            case Sync():
                sync_classic(step, group, event)
            case Heartbeat():
                heartbeat_classic(step, group, event)
            case Leave():
                leave_classic(step, group, event)
            case TargetComputed():
                on_target_computed(step, group, event)
            case _:
                return False
        return True

    def decide_first(self, step: GroupStep, group: Group | None, event: ConsumerRequest) -> None:
        """Decide on a request that may concern a group of any kind: a heartbeat creates a group, or converts a classic
        one."""
        match event:
            case ConsumerHeartbeat():
                heartbeat(step, group, event)
            case DescribeConsumerGroup():
                describe_group(step, group, event)
            case RegexesResolved():
                on_regexes_resolved(step, group, event)

    def decide_at_once(self, step: GroupStep, group: Group | None, event: ConsumerRequest) -> None:
        if isinstance(event, ConsumerHeartbeat):
            reply_if_settled(step, group, event)

    def settled_heartbeat(
        self, step: GroupStep, group: ConsumerGroup, event: RequestOfGroup
    ) -> SettledHeartbeat | None:
        return settled_heartbeat(step, group, event) if isinstance(event, ConsumerHeartbeat) else None

    def is_settled(self, group: ConsumerGroup, heartbeat: SettledHeartbeat) -> bool:
        return is_still_settled(group, heartbeat)

    def replay(self, group: ConsumerGroup | None, change: RecordChange, is_loaded: bool) -> ConsumerGroup | None:
        return replay.replay(group, change)

    def on_timer(self, step: GroupStep, group: ConsumerGroup, key: TimerKey) -> None:
        leaving.on_timer(step, group, key)

    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: ConsumerGroup
    ) -> Iterator[tuple[str, int]]:
        own_ms = config.consumer.of_group(image.group_settings(group.group_id)).session_timeout_ms
        for member_id, member in group.members.items():
            yield member_id, own_ms if member.classic is None else member.classic.session_timeout_ms

    def on_loaded(self, step: GroupStep, group: ConsumerGroup) -> None:
        leaving.on_loaded(step, group)

    def fetch_refusal(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        return fetch_refusal(group, member_id, epoch)


CONSUMER: Final = ConsumerKind()
