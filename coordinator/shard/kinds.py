"""What each kind of group does about each event that concerns one group: (event × kind) → decision.

A new kind of group is a folder beside `classic/`, a member of `GroupType` and a row here for each event. Where the
group of a request does not exist, the request tells the kind: each protocol of groups has requests of its own, and all
of today's are the classic protocol's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from coordinator.classic.commit import commit_offsets
from coordinator.classic.group import ClassicGroup
from coordinator.classic.heartbeat import heartbeat
from coordinator.classic.join import join
from coordinator.classic.leave import leave
from coordinator.classic.loading import loaded, unloaded
from coordinator.classic.sync import sync
from coordinator.classic.timeouts import timer_fired
from coordinator.group.events import CommitOffsets, GroupEvent, GroupRequest, Heartbeat, Join, Leave, Sync, TimerFired
from coordinator.group.group import Group, GroupType
from coordinator.group.step import GroupStep
from coordinator.runtime.events import Loaded, Unloaded

RequestT = TypeVar("RequestT", bound=GroupRequest)
EventT = TypeVar("EventT", bound=GroupEvent)
GroupT = TypeVar("GroupT", bound=Group)
OnRequest: TypeAlias = Callable[[GroupStep, Group | None, GroupRequest], None]
OnEvent: TypeAlias = Callable[[GroupStep, Group, GroupEvent], None]


def on_request(
    request: type[RequestT], kind: type[GroupT], decide: Callable[[GroupStep, GroupT | None, RequestT], None]
) -> OnRequest:
    """The decision as the shard calls it, for a group that may not exist."""

    def decide_any(step: GroupStep, group: Group | None, event: GroupRequest) -> None:
        assert isinstance(event, request)
        assert group is None or isinstance(group, kind)
        decide(step, group, event)

    return decide_any


def on_event(event: type[EventT], kind: type[GroupT], decide: Callable[[GroupStep, GroupT, EventT], None]) -> OnEvent:
    """The decision as the shard calls it, for a group that exists."""

    def decide_any(step: GroupStep, group: Group, happened: GroupEvent) -> None:
        assert isinstance(happened, event)
        assert isinstance(group, kind)
        decide(step, group, happened)

    return decide_any


REQUESTS: Final[Mapping[tuple[type[GroupRequest], GroupType], OnRequest]] = {
    (Heartbeat, GroupType.CLASSIC): on_request(Heartbeat, ClassicGroup, heartbeat),
    (CommitOffsets, GroupType.CLASSIC): on_request(CommitOffsets, ClassicGroup, commit_offsets),
    (Join, GroupType.CLASSIC): on_request(Join, ClassicGroup, join),
    (Sync, GroupType.CLASSIC): on_request(Sync, ClassicGroup, sync),
    (Leave, GroupType.CLASSIC): on_request(Leave, ClassicGroup, leave),
}

EVENTS: Final[Mapping[tuple[type[GroupEvent], GroupType], OnEvent]] = {
    (TimerFired, GroupType.CLASSIC): on_event(TimerFired, ClassicGroup, timer_fired),
    (Loaded, GroupType.CLASSIC): on_event(Loaded, ClassicGroup, loaded),
    (Unloaded, GroupType.CLASSIC): on_event(Unloaded, ClassicGroup, unloaded),
}


def decide_request(step: GroupStep, request: GroupRequest) -> None:
    group = step.groups.get(request.request.group_id)
    kind = GroupType.CLASSIC if group is None else group.group_type
    REQUESTS[type(request), kind](step, group, request)


def decide_event(step: GroupStep, group: Group, event: GroupEvent) -> None:
    EVENTS[type(event), group.group_type](step, group, event)
