"""What can happen to a shard of the group coordinator."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest


class Join(NamedTuple):
    waiter: Waiter
    request: JoinGroupRequest
    client_id: str
    client_host: str
    fresh_id: str
    """A random uuid in its text form, in case that the member needs an id."""


class Sync(NamedTuple):
    waiter: Waiter
    request: SyncGroupRequest


class Heartbeat(NamedTuple):
    waiter: Waiter
    request: HeartbeatRequest


class Leave(NamedTuple):
    """A request of version 3 and later: one of 0 to 2 is given as a list of one member."""

    waiter: Waiter
    request: LeaveGroupRequest


class CommitOffsets(NamedTuple):
    """Only topics that exist, under their names, with their ids where those are known."""

    waiter: Waiter
    request: OffsetCommitRequest


class FetchStableOffsets(NamedTuple):
    """A read that waits until every commit before it is decided. Topics by name; None: all."""

    waiter: Waiter
    request: OffsetFetchRequestGroup


class DeleteOffsets(NamedTuple):
    """Only topics that exist."""

    waiter: Waiter
    request: OffsetDeleteRequest


class DeleteGroups(NamedTuple):
    """Groups of this shard, each named once."""

    waiter: Waiter
    request: DeleteGroupsRequest


class TopicsDeleted(NamedTuple):
    topics: frozenset[str]


class Loaded(NamedTuple):
    """The whole log was replayed; requests come from now on."""


class Unloaded(NamedTuple):
    """The partition is not ours any more: whoever waits is sent to look for the new coordinator. Nothing follows."""


class Tick(NamedTuple):
    """A deadline may have passed. Takes care of one: ask `next_deadline_ms` again."""


class Appended(NamedTuple):
    """The records of the step before are in the log, up to this offset."""

    end_offset: int


class AppendRefused(NamedTuple):
    """The records of the step before are not in the log."""

    error: ErrorCode


class Committed(NamedTuple):
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
