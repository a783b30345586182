"""A share group: its epochs, members, targets and share partitions, changed only by the records of the log.

| state | the group |
|---|---|
| Empty | has no members |
| Stable | has members |

A member gets its target in one step. Share partitions have no owner, so that nothing has to be revoked first.
"""

from __future__ import annotations

from enum import auto
from typing import Final

from moldau.coordinator.group.group import TimerKey, TimerKind
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.membership import FIRST_EPOCH
from moldau.coordinator.group.records import Change
from moldau.coordinator.share.assignor import Assigned
from moldau.coordinator.share.records import Member, StateTopics, group_tombstones
from moldau.protocol.errors import ErrorCode

SHARE_PROTOCOL_TYPE: Final = "share"


class ShareTimer(TimerKind):
    SESSION = auto()
    """The session timeout of a member."""
    TARGET = auto()
    """The timer runs while a thread computes the target assignment of the group."""


class ShareGroup:
    """A group of the share protocol; it implements `moldau.coordinator.group.group.Group`."""

    type_name = "share"
    protocol_type = SHARE_PROTOCOL_TYPE
    is_simple = False
    is_empty = False
    """False, because a share group has no offsets in `__consumer_offsets` and so never expires with its last offset."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.visible_from: int | None = None
        """The end offset of the group's first record; None before that record is appended. Readers see the group once
        the record is committed."""
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        """The wall-clock time (ms) at which the last target was computed; 0 if there is no target or the time is not
        known."""
        self.targets: dict[str, Assigned] = {}
        self.members: dict[str, Member] = {}
        self.state_topics = StateTopics()
        self.seen_image: int | None = None
        """The version of the metadata for which `metadata_hash` was last compared. It is in no record, and neither is
        `initialized_ms`."""
        self._settled: tuple[int, StateTopics, int, int] | None = None
        self.initialized_ms: dict[bytes, int | None] = {}
        """The time (ms, monotonic clock) at which the initialization of each topic last began, by topic id; it is
        repeated after an interval. None if a record of this coordinator began it and no heartbeat has noted the time
        yet."""

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def timers(self) -> list[TimerKey]:
        sessions = [TimerKey(ShareTimer.SESSION, self.group_id, member_id) for member_id in self.members]
        return [TimerKey(ShareTimer.TARGET, self.group_id), *sessions]

    def deletion_error(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def offset_deletion_error(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        return None

    def tombstones(self) -> list[Change]:
        return list(group_tombstones(self.group_id, self.members))

    def is_settled(self, image: CoordinatorImage) -> bool:
        """Whether an earlier heartbeat found nothing to do for the group, and neither the group nor the metadata has
        changed since."""
        if self._settled is None:
            return False
        seen, states, *epochs = self._settled
        return seen == image.version and states is self.state_topics and epochs == [self.epoch, self.assignment_epoch]

    def note_settled(self, image: CoordinatorImage) -> None:
        """Note that a heartbeat found nothing to do for the group with this metadata. Nothing is noted while share
        partitions are being initialized, because the initialization may have to be repeated later."""
        if not self.state_topics.initializing:
            self._settled = image.version, self.state_topics, self.epoch, self.assignment_epoch

    def topics_with(self, member: Member | None, without: str = "") -> frozenset[str]:
        """The names of all topics to which members subscribe, after `member` is added or replaced and the member
        `without` is removed."""
        members = {**self.members, **({member.member_id: member} if member is not None else {})}
        members.pop(without, None)
        return frozenset[str]().union(*(each.topics for each in members.values()))
