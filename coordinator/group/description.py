"""A description of a group that is made in pieces: a group may have thousands of members, and each of them thousands
of topics.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Generic, TypeVar

GroupT = TypeVar("GroupT", bound=Any)


class GroupDescription(Generic[GroupT]):
    """A description whose members are still to be added, from values that do not change: it describes the group as it
    was when the request was decided on.
    """

    def __init__(self, group: GroupT, members: Iterator[object | None]) -> None:
        """`group` has no members yet. `members`: each described member, and None after each topic of it."""
        self.group = group
        self._members = members

    def pieces(self) -> Iterator[None]:
        """Add the members. Each step of the iterator is a small piece of the work."""
        for member in self._members:
            if member is not None:
                self.group.members.append(member)
            yield

    def whole(self) -> GroupT:
        """Add all members at once, and return the description."""
        for _ in self.pieces():
            pass
        return self.group


def in_pieces(parts: list[Any]) -> Generator[None, None, list[Any]]:
    """Complete every `GroupDescription` among the parts, and return the parts with the completed descriptions in their
    place. Each step of the generator is a small piece of the work."""
    for part in parts:
        if isinstance(part, GroupDescription):
            yield from part.pieces()
    return [part.group if isinstance(part, GroupDescription) else part for part in parts]
