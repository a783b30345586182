"""The events of the group shard: requests of clients, changes of the cluster, timers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.coordinator.group.group import TimerKey
from moldau.coordinator.runtime.machine import Loaded, RuntimeEvent, TransactionEnd, Unloaded, Waiter
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


class Join(NamedTuple):
    waiter: Waiter
    request: JoinGroupRequest
    client_id: str
    client_host: str
    fresh_id: str
    """A random UUID as text, which the coordinator uses if the member needs an id."""


class Sync(NamedTuple):
    waiter: Waiter
    request: SyncGroupRequest


class Heartbeat(NamedTuple):
    waiter: Waiter
    request: HeartbeatRequest


class Leave(NamedTuple):
    """A LeaveGroup of version 3 or later; the shell translates versions 0 to 2 into a list of one member."""

    waiter: Waiter
    request: LeaveGroupRequest


class CommitOffsets(NamedTuple):
    """An OffsetCommit. It names only topics that exist, each by its name, and by its id where that is known."""

    waiter: Waiter
    request: OffsetCommitRequest


class CommitTransactionalOffsets(NamedTuple):
    """A TxnOffsetCommit.

    It names only topics that exist. The offsets count once the producer's transaction is committed.
    """

    waiter: Waiter
    request: TxnOffsetCommitRequest
    guard: object = None
    """The verification guard of the log, if the transaction coordinator has confirmed the transaction
    (`TransactionWrite.guard`).
    """


class EndOffsetsTransaction(NamedTuple):
    """A WriteTxnMarkers request: a transaction coordinator ends the transaction of a producer (WriteTxnMarkers).

    The answer is an `ErrorCode`: NONE when the marker is committed in the log, else the error of the marker.
    """

    waiter: Waiter
    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class FetchStableOffsets(NamedTuple):
    """An OffsetFetch that waits until every earlier commit is committed or has failed.

    Topics are given by name; None: all topics.
    """

    waiter: Waiter
    request: OffsetFetchRequestGroup


class DeleteOffsets(NamedTuple):
    """An OffsetDelete. It names only topics that exist."""

    waiter: Waiter
    request: OffsetDeleteRequest


class DeleteGroups(NamedTuple):
    """A DeleteGroups. It names groups of this shard, each once."""

    waiter: Waiter
    request: DeleteGroupsRequest


class TopicsDeleted(NamedTuple):
    """Topics, by name, that the cluster's metadata no longer holds."""

    topics: frozenset[str]


class TimerFired(NamedTuple):
    """A timer of a group is due."""

    key: TimerKey


GroupRequest: TypeAlias = Join | Sync | Heartbeat | Leave | CommitOffsets | CommitTransactionalOffsets
"""A request about one group, which may not exist. The decision depends on the kind of the group."""

ShardRequest: TypeAlias = (
    GroupRequest | EndOffsetsTransaction | FetchStableOffsets | DeleteOffsets | DeleteGroups | TopicsDeleted
)
"""An event that the shell passes to the shard."""

Event: TypeAlias = ShardRequest | RuntimeEvent

GroupEvent: TypeAlias = TimerFired | Loaded | Unloaded
"""An event of an existing group that is not a request."""
