"""ListGroups: one entry for a group of any kind."""

from __future__ import annotations

from moldau.coordinator.group.group import Group
from moldau.protocol.messages.list_groups import ListedGroup


def list_entry(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.group_type.value,
    )


def is_listed(entry: ListedGroup, states: list[str], types: list[str]) -> bool:
    """Whether the group passes the filters of a request; an empty filter lets all groups pass."""
    return (not states or entry.group_state.lower() in {state.lower() for state in states}) and (
        not types or entry.group_type in {name.lower() for name in types}
    )
