"""The requests of share groups, and the initialization of the state of their share partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

NO_CLIENT: Final = Waiter(None, 0)
"""The waiter of an event for which no client waits."""


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat: a member joins, stays, or leaves. The reply is a `ShareGroupHeartbeatResponse`.

    The broker has authorized the request.
    """

    waiter: Waiter
    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str

    @property
    def group_id(self) -> str:
        return self.request.group_id


class DescribeShareGroup(NamedTuple):
    """One group of a ShareGroupDescribe. The reply is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class InitialOffset(NamedTuple):
    topic_id: bytes
    partition: int
    start_offset: int
    """The offset at which delivery begins; -1 if the group's settings decide (share.auto.offset.reset)."""


class InitializeStates(NamedTuple):
    """The command to initialize the state of share partitions at the share coordinator, and to report
    `StatesInitialized`."""

    group_id: str
    state_epoch: int
    offsets: tuple[InitialOffset, ...]


class StatesInitialized(NamedTuple):
    """The report that share partitions are initialized, after `InitializeStates` or an AlterShareGroupOffsets."""

    group_id: str
    partitions: frozenset[tuple[bytes, int]]
    failed: frozenset[tuple[bytes, int]] = frozenset()
    """The partitions whose initialization failed; the next heartbeat begins it again. For partitions that are neither
    in `partitions` nor here the result is not known, and the initialization is repeated after the retry interval."""
    waiter: Waiter = NO_CLIENT


class ListStates(NamedTuple):
    """A request for the share partitions that are initialized. The reply is a mapping from topic id to partition
    indexes, or a `Refusal`."""

    waiter: Waiter
    group_id: str


class AlterOffsets(NamedTuple):
    """An AlterShareGroupOffsets. The reply is an `OffsetsToAlter` or a `Refusal`."""

    waiter: Waiter
    group_id: str
    offsets: tuple[tuple[str, int, int], ...]
    """The offsets to set, each as a topic name, a partition index and a start offset."""


class OffsetsToAlter(NamedTuple):
    """The reply to `AlterOffsets`: the named share partitions that exist, with the offsets at which the broker
    initializes their state."""

    state_epoch: int
    offsets: tuple[InitialOffset, ...]


class DeleteOffsets(NamedTuple):
    """A DeleteShareGroupOffsets. The reply is a `StatesToDelete` or a `Refusal`."""

    waiter: Waiter
    group_id: str
    topics: tuple[str, ...]


class DeleteStates(NamedTuple):
    """A request for the share partitions whose state is to be deleted before a DeleteGroups deletes the group. The
    reply is a `StatesToDelete` or a `Refusal`."""

    waiter: Waiter
    group_id: str


class StatesToDelete(NamedTuple):
    """The share partitions whose state the broker has to delete at the share coordinator: partition indexes by topic
    id."""

    states: Mapping[bytes, frozenset[int]]


class StatesDeleted(NamedTuple):
    """The report that the state of these topics is deleted at the share coordinator. The reply is an empty
    `StatesToDelete`."""

    waiter: Waiter
    group_id: str
    topic_ids: frozenset[bytes]
