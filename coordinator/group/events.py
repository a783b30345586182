"""The events of the shard of groups: clients' requests, and what happens in the cluster and on the clock."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from coordinator.group.step import TimerKey
from coordinator.runtime.effects import TransactionEnd, Waiter
from coordinator.runtime.events import Loaded, RuntimeEvent, Unloaded
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


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
    """A request of version 3 or later; the shell gives one of versions 0 to 2 as a list of one member."""

    waiter: Waiter
    request: LeaveGroupRequest


class CommitOffsets(NamedTuple):
    """The request names only topics that exist, each by its name, and by its id where that is known."""

    waiter: Waiter
    request: OffsetCommitRequest


class CommitTransactionalOffsets(NamedTuple):
    """The request names only topics that exist. The offsets count when the transaction of the producer is committed."""

    waiter: Waiter
    request: TxnOffsetCommitRequest
    guard: object = None
    """The log's, where the transaction coordinator was asked before (`TransactionWrite.guard`)."""


class EndOffsetsTransaction(NamedTuple):
    """A transaction coordinator sends the marker that ends the transaction of a producer (WriteTxnMarkers).

    The answer is an `ErrorCode`: NONE when the marker is committed in the log, else the error of the marker.
    """

    waiter: Waiter
    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class FetchStableOffsets(NamedTuple):
    """A read that waits until every commit before it is decided. Topics are given by name; None: all topics."""

    waiter: Waiter
    request: OffsetFetchRequestGroup


class DeleteOffsets(NamedTuple):
    """The request names only topics that exist."""

    waiter: Waiter
    request: OffsetDeleteRequest


class DeleteGroups(NamedTuple):
    """The request names groups of this shard, each once."""

    waiter: Waiter
    request: DeleteGroupsRequest


class TopicsDeleted(NamedTuple):
    """Topics, by name, that the cluster's metadata no longer holds."""

    topics: frozenset[str]


class TimerFired(NamedTuple):
    """A timer of a group is due."""

    key: TimerKey


GroupRequest: TypeAlias = Join | Sync | Heartbeat | Leave | CommitOffsets | CommitTransactionalOffsets
"""A request that concerns one group, which may not exist: what it does depends on the kind of group."""

ShardRequest: TypeAlias = (
    GroupRequest | EndOffsetsTransaction | FetchStableOffsets | DeleteOffsets | DeleteGroups | TopicsDeleted
)
"""What the shell gives to the shard."""

Event: TypeAlias = ShardRequest | RuntimeEvent

GroupEvent: TypeAlias = TimerFired | Loaded | Unloaded
"""What happens to a group that exists, beside requests."""
