"""What can happen to a shard of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coordinator.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Join:
    waiter: Waiter
    request: JoinGroupRequest
    client_id: str
    client_host: str
    fresh_id: str
    """A random uuid in its text form, in case that the member needs an id."""


@dataclass(frozen=True, slots=True)
class Sync:
    waiter: Waiter
    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Heartbeat:
    waiter: Waiter
    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class Leave:
    """A request of version 3 and later: one of 0 to 2 is given as a list of one member."""

    waiter: Waiter
    request: LeaveGroupRequest


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Only topics that exist, under their names, with their ids where those are known."""

    waiter: Waiter
    request: OffsetCommitRequest


@dataclass(frozen=True, slots=True)
class FetchStableOffsets:
    """A read that waits until every commit before it is decided. Topics by name; None: all."""

    waiter: Waiter
    request: OffsetFetchRequestGroup


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Only topics that exist."""

    waiter: Waiter
    request: OffsetDeleteRequest


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    """Groups of this shard, each named once."""

    waiter: Waiter
    request: DeleteGroupsRequest


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The whole log was replayed; requests come from now on."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The partition is not ours any more: whoever waits is sent to look for the new coordinator. Nothing follows."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline may have passed. Takes care of one: ask `next_deadline_ms` again."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The records of the step before are in the log, up to this offset."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """The records of the step before are not in the log."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything below this offset is committed."""

    end_offset: int


Event: TypeAlias = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | FetchStableOffsets
    | DeleteOffsets
    | DeleteGroups
    | TopicsDeleted
    | Loaded
    | Unloaded
    | Tick
    | Appended
    | AppendRefused
    | Committed
)
