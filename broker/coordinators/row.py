"""The row of a coordinator in the registry: everything that the shell uses of one kind of machine."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from moldau.broker.config.internal_topics import InternalTopic
from moldau.broker.coordinators.partition_log import CoordinatorLog
from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.protocol.compression import Codec
from moldau.protocol.late_dataclass import dataclass
from moldau.replication.partition import ACKS_ALL

ShardT = TypeVar("ShardT")
RequestT = TypeVar("RequestT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
LoadedT = TypeVar("LoadedT")


class KeyType(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Reports(Protocol[RequestT_contra]):
    """The way in which the outcome of a machine's command is reported to the machine."""

    @property
    def is_open(self) -> bool:
        """Whether the machine still has its partition. Later reports are dropped."""

    @property
    def partition_log(self) -> CoordinatorLog:
        """The machine's partition."""

    def report(self, event: RequestT_contra) -> None:
        """Pass an event to the machine."""


def performs_nothing(command: object, reports: Reports[RequestT]) -> None:
    """The `perform` of machines without commands."""
    raise AssertionError(f"no such command: {command}")


@dataclass(frozen=True, slots=True)
class CoordinatorRow(Generic[ShardT, RequestT, LoadedT]):
    """What the shell uses of one kind of machine. `ShardT` is a `StateMachine[RequestT, LoadedT]` over one partition of
    the topic.
    """

    topic: InternalTopic
    """The internal topic whose partitions hold the machines' records."""
    key_type: KeyType
    """The type of the keys that the machines coordinate (FindCoordinator)."""
    log_name: str
    """The name of the logger for the machines' notes."""
    new_shard: Callable[[int, int], ShardT]
    """Makes an empty machine, from the high watermark and the leader epoch of its partition."""
    new_reader: Callable[[], RecordReader[LoadedT]]
    """Decodes the records of a partition, once from its start to its end."""
    load_buffer_size: int
    """The most bytes of a log that are read at once; at least one batch is read."""
    codec: Codec
    """The codec that compresses the machines' records."""
    required_acks: int = ACKS_ALL
    """The acks of the appends. ACKS_ALL refuses them while fewer replicas are in sync than min.insync.replicas. With
    ACKS_LEADER they are appended, and wait for enough replicas until the machine's commit timeout.
    """
    perform: Callable[[object, Reports[RequestT]], None] = performs_nothing
    """Carries out the machine's commands outside of its log, and reports their outcomes by events."""
