"""DescribeGroups: the description of a classic group."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import DEAD, STABLE
from moldau.coordinator.classic.member import Member
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember

NOT_FOUND_VERSION: Final = 6
"""From this version of DescribeGroups on, a group that does not exist is an error; before, it is a dead group."""


def describe(group: ClassicGroup) -> DescribedGroup:
    """Describe a group.

    The protocol and the members' subscriptions are included only while it is stable; assignments always.
    """
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[describe_member(group, member, with_metadata=is_stable) for member in group.members.values()],
    )


def describe_member(group: ClassicGroup, member: Member, *, with_metadata: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata_of(group.protocol_name) if with_metadata else b"",
        member_assignment=member.assignment,
    )


def describe_absent(group_id: str, version: int) -> DescribedGroup:
    """The description of a group that does not exist, or is not a classic group."""
    described = DescribedGroup(group_id=group_id, group_state=DEAD.value, protocol_type="", protocol_data="")
    if version >= NOT_FOUND_VERSION:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
    return described
