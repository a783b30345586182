"""A row of the registry of coordinators: what the shell has to know of one kind of machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from broker.config.internal_topics import InternalTopic
from coordinator.runtime.log_reading import RecordReader
from protocol.compression import Codec

ShardT = TypeVar("ShardT")
RequestT = TypeVar("RequestT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
LoadedT = TypeVar("LoadedT")


class KeyType(IntEnum):
    """What a key of FindCoordinator names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Reports(Protocol[RequestT_contra]):
    """Where it is reported what a machine's command led to."""

    @property
    def is_open(self) -> bool:
        """Whether the machine still has its partition; what is reported afterwards is dropped."""

    def report(self, event: RequestT_contra) -> None:
        """Give the machine an event of its own."""


def performs_nothing(command: object, reports: Reports[RequestT]) -> None:
    """For machines that give no commands."""
    raise AssertionError(f"no such command: {command}")


@dataclass(frozen=True, slots=True)
class CoordinatorRow(Generic[ShardT, RequestT, LoadedT]):
    """`ShardT` is a `StateMachine[RequestT, LoadedT]` over one partition of the topic."""

    topic: InternalTopic
    """Whose partitions hold the machines' records."""
    key_type: KeyType
    """The type of the keys that the machines coordinate (FindCoordinator)."""
    log_name: str
    """The logger of their notes."""
    new_shard: Callable[[int, int], ShardT]
    """An empty machine, by the high watermark and the leader epoch of its partition."""
    new_reader: Callable[[], RecordReader[LoadedT]]
    """Decodes the records of a partition, once from its start to its end."""
    load_buffer_size: int
    """How many bytes of a log are read at once, at least one batch."""
    codec: Codec
    """The codec by which the machines' records are compressed."""
    perform: Callable[[object, Reports[RequestT]], None] = performs_nothing
    """Does what a machine commands outside of its log, and reports back by events."""
