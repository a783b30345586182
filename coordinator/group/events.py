"""The events of the group shard that do not belong to one kind of group."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.coordinator.group.group import RequestOfGroup
from moldau.coordinator.runtime.machine import RuntimeEvent, TransactionEnd, Waiter
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


class CommitOffsets(NamedTuple):
    """An OffsetCommit request. It names only topics that exist, each by its name, and by its id if the id is known."""

    waiter: Waiter
    request: OffsetCommitRequest

    @property
    def group_id(self) -> str:
        return self.request.group_id


class CommitTransactionalOffsets(NamedTuple):
    """A TxnOffsetCommit request.

    It names only topics that exist. The offsets take effect when the producer's transaction is committed.
    """

    waiter: Waiter
    request: TxnOffsetCommitRequest
    guard: object = None
    """The verification guard of the log, if the transaction coordinator has confirmed the transaction
    (`TransactionWrite.guard`).
    """

    @property
    def group_id(self) -> str:
        return self.request.group_id


class EndOffsetsTransaction(NamedTuple):
    """A request of WriteTxnMarkers: a transaction coordinator ends the transaction of a producer.

    The answer is an `ErrorCode`: NONE when the marker is committed in the log, else the error of its write.
    """

    waiter: Waiter
    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class FetchStableOffsets(NamedTuple):
    """An OffsetFetch of one group that waits until every earlier commit is committed in the log or has failed.

    The request names topics by name. If it has no list of topics, it is about all topics.
    """

    waiter: Waiter
    request: OffsetFetchRequestGroup


class DeleteOffsets(NamedTuple):
    """An OffsetDelete request. It names only topics that exist."""

    waiter: Waiter
    request: OffsetDeleteRequest


class DeleteGroups(NamedTuple):
    """A DeleteGroups request. It names groups of this shard, each once."""

    waiter: Waiter
    request: DeleteGroupsRequest


class TopicsDeleted(NamedTuple):
    """The event that topics were deleted from the cluster's metadata."""

    topics: frozenset[str]
    """The names of the deleted topics. Committed offsets are stored by topic name."""
    topic_ids: frozenset[bytes] = frozenset()


ShardRequest: TypeAlias = (
    RequestOfGroup | EndOffsetsTransaction | FetchStableOffsets | DeleteOffsets | DeleteGroups | TopicsDeleted
)
"""An event that the broker passes to the group shard. The kind of a group declares its requests about one group; only
commits are declared here."""

Event: TypeAlias = ShardRequest | RuntimeEvent
