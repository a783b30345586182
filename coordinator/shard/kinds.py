"""Adapters that let the shard call the decision of one kind of group for a group of any kind.

The table of the shard maps each event and kind to a decision; the checks here fail where the table is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from moldau.coordinator.group.events import GroupEvent, GroupRequest
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.step import GroupStep

RequestT = TypeVar("RequestT", bound=GroupRequest)
EventT = TypeVar("EventT", bound=GroupEvent)
GroupT = TypeVar("GroupT", bound=Group)
OnRequest: TypeAlias = Callable[[GroupStep, Group | None, GroupRequest], None]
OnEvent: TypeAlias = Callable[[GroupStep, Group, GroupEvent], None]


def on_request(
    request: type[RequestT], kind: type[GroupT], decide: Callable[[GroupStep, GroupT | None, RequestT], None]
) -> OnRequest:
    """Adapt a decision on a request, whose group may not exist."""

    def decide_any(step: GroupStep, group: Group | None, event: GroupRequest) -> None:
        assert isinstance(event, request)
        assert group is None or isinstance(group, kind)
        decide(step, group, event)

    return decide_any


def on_event(event: type[EventT], kind: type[GroupT], decide: Callable[[GroupStep, GroupT, EventT], None]) -> OnEvent:
    """Adapt a decision on an event of an existing group."""

    def decide_any(step: GroupStep, group: Group, happened: GroupEvent) -> None:
        assert isinstance(happened, event)
        assert isinstance(group, kind)
        decide(step, group, happened)

    return decide_any
