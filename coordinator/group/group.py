"""What all kinds of groups share: the interface of a group, the settings, and the step of the shard.

Classic groups and groups of the consumer protocol (KIP-848) share ids, offsets and a partition of
`__consumer_offsets`, and a group may turn from one kind into the other in place: the shard keeps groups by id, each of
the class of its kind. The tables in `coordinator/shard/shard.py` have the operation of each kind of group for each
event.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from moldau.coordinator.group.records import Change
from moldau.coordinator.runtime.step import Step, Timers
from moldau.protocol.errors import ErrorCode

MINUTE_MS = 60_000


class GroupConfig(NamedTuple):
    """Kafka's settings of groups, with the defaults of 4.3.1."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    max_size: int = 0x7FFFFFFF
    """group.max.size"""
    member_metadata_bytes_max: int = 1_048_588
    """message.max.bytes: the group's record must not be larger"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    offsets_retention_minutes: int = 10_080
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes"""
    offsets_topic_num_partitions: int = 50
    """offsets.topic.num.partitions"""
    offsets_topic_replication_factor: int = 3
    """offsets.topic.replication.factor"""
    offsets_topic_segment_bytes: int = 104_857_600
    """offsets.topic.segment.bytes"""
    offsets_topic_compression_codec: int = 0
    """offsets.topic.compression.codec"""
    offsets_commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms"""
    offsets_load_buffer_size: int = 5_242_880
    """offsets.load.buffer.size"""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """The time (ms) that the join of a member without an id may be parked: such a member cannot send heartbeats."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS


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


class TimerKind(Enum):
    SESSION = auto()
    """The session timeout of a member."""
    JOIN = auto()
    """The join phase of a rebalance, or the initial delay of a group's first."""
    SYNC = auto()
    """The time that the members of a new generation have for their SyncGroup requests."""
    EXPIRY = auto()
    """The next search for expired offsets."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class Rebalances:
    """Counts of rebalances for the metrics, which outlive the steps."""

    completed: int = 0


@dataclass(slots=True)
class GroupStep(Step[Change]):
    config: GroupConfig
    groups: dict[str, Group]
    timers: Timers[TimerKey]
    rebalances: Rebalances

    def note(self, group: Group, text: str) -> None:
        """Add a note about a group for the operator's log.

        The caller quotes names and reasons, which are text from clients.
        """
        self.notes.append(f"group {group.group_id!r}: {text}")

    def schedule(self, kind: TimerKind, group: Group, delay_ms: int, member_id: str = "") -> None:
        self.timers.schedule(TimerKey(kind, group.group_id, member_id), self.now_ms + delay_ms)

    def cancel(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.timers.cancel(TimerKey(kind, group.group_id, member_id))
