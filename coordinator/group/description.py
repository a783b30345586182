"""What operators see of groups: DescribeGroups and ListGroups."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.group_state import DEAD, STABLE
from coordinator.classic.member import Member
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from protocol.messages.list_groups import ListedGroup

GROUP_TYPE = "classic"
NOT_FOUND_VERSION = 6
"""From this version of DescribeGroups on, a group that is not there is an error; it was a dead group before."""


def describe(group: Group) -> DescribedGroup:
    """What members say is shown when the group is stable; what they were given last, always."""
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[describe_member(group, member, with_metadata=is_stable) for member in group.members.values()],
    )


def describe_member(group: Group, member: Member, *, with_metadata: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata_of(group.protocol_name) if with_metadata else b"",
        member_assignment=member.assignment,
    )


def describe_absent(group_id: str, version: int) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=DEAD.value, protocol_type="", protocol_data="")
    if version >= NOT_FOUND_VERSION:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
    return described


def list_entry(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )


def is_listed(entry: ListedGroup, states: list[str], types: list[str]) -> bool:
    """Whether filters let the group through; an empty filter lets all."""
    return (not states or entry.group_state.lower() in {state.lower() for state in states}) and (
        not types or entry.group_type in {kind.lower() for kind in types}
    )
