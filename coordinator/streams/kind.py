"""The group kind of streams groups: passes each request, record and timer to the function that handles it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, get_args

from moldau.coordinator.classic.events import Join
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, RequestOfGroup, TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.group.target import TargetComputed
from moldau.coordinator.streams import membership, replay
from moldau.coordinator.streams.commit import commit_offsets, commit_transactional_offsets, fetch_refusal
from moldau.coordinator.streams.describe import describe_group
from moldau.coordinator.streams.events import DescribeStreamsGroup, StreamsHeartbeat, StreamsTimer
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.heartbeat import heartbeat
from moldau.coordinator.streams.records import RECORDS
from moldau.coordinator.streams.target import on_target_computed
from moldau.protocol.errors import ErrorCode

StreamsRequest: TypeAlias = StreamsHeartbeat | DescribeStreamsGroup


class StreamsKind(GroupKind[StreamsGroup, StreamsRequest]):
    group_class = StreamsGroup
    session_timer = StreamsTimer.SESSION
    first_requests = get_args(StreamsRequest)
    records = RECORDS

    def decide(self, step: GroupStep, group: StreamsGroup, event: RequestOfGroup) -> bool:
        match event:
            case CommitOffsets():
                commit_offsets(step, group, event)
            case CommitTransactionalOffsets():
                commit_transactional_offsets(step, group, event)
            case Join():
                membership.join_classic(step, group, event)
            case TargetComputed():
                on_target_computed(step, group, event)
            case _:
                return False
        return True

    def decide_first(self, step: GroupStep, group: Group | None, event: StreamsRequest) -> None:
        """Decide on a request that may concern a group of any kind: a heartbeat creates a group, or takes the place of
        an empty classic group."""
        match event:
            case StreamsHeartbeat():
                heartbeat(step, group, event)
            case DescribeStreamsGroup():
                describe_group(step, group, event)

    def replay(self, group: StreamsGroup | None, change: RecordChange, is_loaded: bool) -> StreamsGroup | None:
        return replay.replay(group, change)

    def on_timer(self, step: GroupStep, group: StreamsGroup, key: TimerKey) -> None:
        membership.on_timer(step, group, key)

    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: StreamsGroup
    ) -> Iterator[tuple[str, int]]:
        timeout_ms = config.streams.of_group(image.group_settings(group.group_id)).session_timeout_ms
        for member_id in group.members:
            yield member_id, timeout_ms

    def on_loaded(self, step: GroupStep, group: StreamsGroup) -> None:
        membership.on_loaded(step, group)

    def fetch_refusal(self, group: StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
        return fetch_refusal(group, member_id, epoch)


STREAMS: Final = StreamsKind()
