"""The interface that groups of every kind implement for the shard and for the offsets.

Classic groups and groups of the consumer protocol (KIP-848) share ids, offsets and a partition of
`__consumer_offsets`, and a group may turn from one kind into the other in place: the shard keeps groups by id, each of
the class of its kind. The tables in `coordinator/shard/shard.py` have the operation of each kind of group for each
event.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Protocol

from moldau.coordinator.group.records import Change
from moldau.protocol.errors import ErrorCode


class GroupType(Enum):
    """The types of groups. The values are Kafka's names in ListGroups."""

    CLASSIC = "classic"


class Group(Protocol):
    visible_from: int | None
    """End offset of the first record about the group; None before it is appended.

    Readers see the group once that record is committed.
    """

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """Kafka's name of the state, for ListGroups and the metrics."""

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def members_count(self) -> int: ...

    @property
    def session_ids(self) -> Collection[str]:
        """The ids that may have a session timer: members, and ids given to clients that have not joined."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members. A group without members expires with its last offset."""

    def deletion_error(self) -> ErrorCode:
        """The error of DeleteGroups; NONE where the group may be deleted."""

    def offset_deletion_error(self) -> ErrorCode:
        """The error of OffsetDelete for all offsets of the group; NONE where some may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use offsets of the topic, which are then neither deleted nor expired."""

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        """The time (wall clock, ms) from which the retention of an offset committed at `commit_ms` counts; None: the
        group may still need the offset."""

    def tombstones(self) -> list[Change]:
        """The changes that remove the group from the log, its offsets aside."""
