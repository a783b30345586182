"""The events of the group shard that do not belong to one kind of group."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.coordinator.group.group import AboutGroup
from moldau.coordinator.runtime.machine import RuntimeEvent, TransactionEnd, Waiter
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


class CommitOffsets(NamedTuple):
    """An OffsetCommit. It names only topics that exist, each by its name, and by its id if that is known."""

    waiter: Waiter
    request: OffsetCommitRequest

    @property
    def group_id(self) -> str:
        return self.request.group_id


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

    @property
    def group_id(self) -> str:
        return self.request.group_id


class EndOffsetsTransaction(NamedTuple):
    """A WriteTxnMarkers request: a transaction coordinator ends the transaction of a producer.

    The answer is an `ErrorCode`: NONE when the marker is committed in the log, else the error of the marker.
    """

    waiter: Waiter
    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class FetchStableOffsets(NamedTuple):
    """An OffsetFetch that waits until every earlier commit is committed or has failed.

    The request names topics by name; no list means all topics.
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
    """Topics that the cluster's metadata no longer holds."""

    topics: frozenset[str]
    """Their names: offsets are kept by name."""
    topic_ids: frozenset[bytes] = frozenset()


ShardRequest: TypeAlias = (
    AboutGroup | EndOffsetsTransaction | FetchStableOffsets | DeleteOffsets | DeleteGroups | TopicsDeleted
)
"""An event that the shell passes to the shard. Requests about one group are declared by their kind, save commits."""

Event: TypeAlias = ShardRequest | RuntimeEvent
