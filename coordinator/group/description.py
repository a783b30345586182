"""Builds the description of a group in pieces, so that the event loop is not blocked: a group may have thousands of
members, and each member thousands of topics.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Generic, TypeVar

GroupT = TypeVar("GroupT", bound=Any)


class GroupDescription(Generic[GroupT]):
    """A description of a group whose members are added later, piece by piece. The members come from values that do not
    change, so the description shows the group as it was when the request was decided on."""

    def __init__(self, group: GroupT, members: Iterator[object | None]) -> None:
        """`group` is the description without members. `members` yields each described member, and None after each topic
        of a member."""
        self.group = group
        self._members = members

    def pieces(self) -> Iterator[None]:
        """Add the members to the description. The caller may pause after each step of the iterator."""
        for member in self._members:
            if member is not None:
                self.group.members.append(member)
            yield

    def whole(self) -> GroupT:
        """Add all members at once, and return the description."""
        for _ in self.pieces():
            pass
        return self.group


def complete_descriptions(parts: list[Any]) -> Generator[None, None, list[Any]]:
    """Complete every `GroupDescription` in `parts`, and return the list with the completed descriptions in their place.
    The caller may pause after each step of the generator."""
    for part in parts:
        if isinstance(part, GroupDescription):
            yield from part.pieces()
    return [part.group if isinstance(part, GroupDescription) else part for part in parts]
