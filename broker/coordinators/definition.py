"""The definition of a kind of coordinator: its internal topic, its state machines, and how their records are read,
appended and compressed.
"""

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


class CommandReports(Protocol[RequestT_contra]):
    """Takes the outcome of a command, and passes it to the state machine that gave the command."""

    @property
    def is_open(self) -> bool:
        """Whether this broker still leads the partition of the state machine. While it is False, `report` has no
        effect.
        """

    @property
    def partition_log(self) -> CoordinatorLog:
        """The partition of the internal topic that holds the state machine's records."""

    def report(self, event: RequestT_contra) -> None:
        """Pass the outcome of a command to the state machine, as an event."""


def reject_command(command: object, reports: CommandReports[RequestT]) -> None:
    """Raise AssertionError. It is the `perform` of coordinators whose state machines give no commands."""
    raise AssertionError(f"no such command: {command}")


@dataclass(frozen=True, slots=True)
class CoordinatorDefinition(Generic[ShardT, RequestT, LoadedT]):
    """Defines one kind of coordinator. `Shards` runs one of its state machines for each partition of `topic`. `ShardT`
    is the class of the state machines; it implements `StateMachine[RequestT, LoadedT]`.
    """

    topic: InternalTopic
    """The internal topic whose partitions hold the records of the state machines."""
    key_type: KeyType
    """The type of the keys in FindCoordinator: group ids, transactional ids or share partitions."""
    log_name: str
    """The name of the logger to which the notes of the state machines go."""
    new_shard: Callable[[int, int], ShardT]
    """Makes an empty state machine from the high watermark and the leader epoch of its partition."""
    new_reader: Callable[[], RecordReader[LoadedT]]
    """Makes the decoder for the records of a partition. A decoder reads one log, once from its start to its end."""
    load_buffer_size: int
    """The most bytes of a log that are read at once; at least one batch is read."""
    codec: Codec
    """The codec that compresses the records of the state machines."""
    required_acks: int = ACKS_ALL
    """The acks with which records are appended. With ACKS_ALL appends are refused while fewer replicas are in sync than
    min.insync.replicas. With ACKS_LEADER they are accepted, and wait for enough replicas until the state machine's
    commit timeout.
    """
    perform: Callable[[object, CommandReports[RequestT]], None] = reject_command
    """Carries out a command of a state machine, such as a request to another broker. Its outcome is reported as an
    event.
    """
