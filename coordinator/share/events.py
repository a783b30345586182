"""The requests of share groups, and the initialization of the state of their share partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

NO_CLIENT: Final = Waiter(None, 0)
"""The waiter of an event that no client waits for."""


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat: a member joins, stays, or leaves. The reply is a `ShareGroupHeartbeatResponse`.

    The shell has checked the rights of the client.
    """

    waiter: Waiter
    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str

    @property
    def group_id(self) -> str:
        return self.request.group_id


class DescribeShareGroup(NamedTuple):
    """A group of a ShareGroupDescribe. The reply is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class InitialOffset(NamedTuple):
    topic_id: bytes
    partition: int
    start_offset: int
    """The offset at which delivery begins; -1 if the group's settings decide (share.auto.offset.reset)."""


class InitializeStates(NamedTuple):
    """A command: initialize the state of share partitions, and report `StatesInitialized`."""

    group_id: str
    state_epoch: int
    offsets: tuple[InitialOffset, ...]


class StatesInitialized(NamedTuple):
    """The outcome of `InitializeStates`, or of an AlterShareGroupOffsets: these share partitions are initialized."""

    group_id: str
    partitions: frozenset[tuple[bytes, int]]
    failed: frozenset[tuple[bytes, int]] = frozenset()
    """The partitions whose initialization failed: the next heartbeat begins it anew. If an outcome is not known, the
    initialization is repeated after the retry interval.
    """
    waiter: Waiter = NO_CLIENT


class ListStates(NamedTuple):
    """Asks for the share partitions that are initialized. The reply is a mapping from topic id to partitions, or a
    `Refusal`.
    """

    waiter: Waiter
    group_id: str


class AlterOffsets(NamedTuple):
    """An AlterShareGroupOffsets. The reply is an `OffsetsToAlter` or a `Refusal`."""

    waiter: Waiter
    group_id: str
    offsets: tuple[tuple[str, int, int], ...]
    """(topic, partition, start offset)"""


class OffsetsToAlter(NamedTuple):
    """The share partitions that exist, with the offsets at which the shell initializes them."""

    state_epoch: int
    offsets: tuple[InitialOffset, ...]


class DeleteOffsets(NamedTuple):
    """A DeleteShareGroupOffsets. The reply is a `StatesToDelete` or a `Refusal`."""

    waiter: Waiter
    group_id: str
    topics: tuple[str, ...]


class DeleteStates(NamedTuple):
    """Sent before a DeleteGroups deletes the group. The reply is a `StatesToDelete` or a `Refusal`."""

    waiter: Waiter
    group_id: str


class StatesToDelete(NamedTuple):
    """The share partitions whose state the shell deletes, by topic id."""

    states: Mapping[bytes, frozenset[int]]


class StatesDeleted(NamedTuple):
    """The state of these topics is deleted at the share coordinator. The reply is an empty `StatesToDelete`."""

    waiter: Waiter
    group_id: str
    topic_ids: frozenset[bytes]
