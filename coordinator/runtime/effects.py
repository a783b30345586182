"""What one step of the coordinator asks the shell to do."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from protocol.messages.delete_groups import DeleteGroupsResponse
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteResponse
from protocol.messages.offset_fetch import OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupResponse
from protocol.record_builder import Record

Response: TypeAlias = (
    DeleteGroupsResponse
    | HeartbeatResponse
    | JoinGroupResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetDeleteResponse
    | OffsetFetchResponseGroup
    | SyncGroupResponse
)


class Waiter(NamedTuple):
    """Somebody who is owed one reply: the shell's token for it and the version of the request."""

    token: object
    version: int


class Reply(NamedTuple):
    token: object
    response: Response


class Effects(NamedTuple):
    """In this order: append the records as one atomic batch and report it (`Appended`, `AppendRefused`), send the
    replies. Replies that need the records to be committed are not here yet: they come from the step that learns it.
    """

    records: list[Record]
    replies: list[Reply]
    notes: list[str]
    """What an operator may want to read in the log."""
