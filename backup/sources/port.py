"""The interface of a source of logs, from which a backup is taken. Every call blocks: the caller runs it outside of its
event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from moldau.backup.manifest import PartitionKey

ATTEMPTS_MAX: Final = 3
"""The most times that a source asks for the metadata and all ends before it gives up."""


class LogStartMoved(Exception):
    """Retention removed the offset that was to be read. `start_offset`: the log start offset now."""

    def __init__(self, start_offset: int) -> None:
        super().__init__(f"the log starts at offset {start_offset} now")
        self.start_offset = start_offset


class LogReader(Protocol):
    """Reads the stored bytes of one log."""

    def read(self, offset: int, taken: int) -> bytes:
        """Read stored bytes that begin with the batch that holds `offset`, or with the first one after it. They have at
        least one whole batch, and perhaps a part of one at the end. They are empty if the log has no such batch.

        `taken`: the number of bytes of the last result that the caller has used; 0 at first. Raises `LogStartMoved`,
        and what the source raises.
        """

    def close(self) -> None:
        """Close the files and connections of this reader."""


class SourceLog(Protocol):
    """The log of a partition between two offsets: its start and its end when the source was asked for them."""

    @property
    def key(self) -> PartitionKey: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def place(self) -> str:
        """The location of the log, for messages and reports."""

    def has(self, epoch: int, end_offset: int) -> bool:
        """Whether the log has batches of this leader epoch up to an offset (exclusive). If so, an earlier backup that
        ends with this epoch has the same batches as the log below that offset.
        """

    def open(self) -> LogReader:
        """Open a reader of this log."""


class MetadataSnapshot(NamedTuple):
    """The metadata of a cluster as the bytes of a KRaft snapshot."""

    end_offset: int
    epoch: int
    data: bytes


class Asked(NamedTuple):
    """The metadata and the logs of a source with their ends, which it was asked for in the order of `order.py`."""

    began_ms: int
    asked_ms: int
    metadata: MetadataSnapshot
    logs: Sequence[SourceLog]
    decided: Mapping[int, int] = MappingProxyType({})
    """The end offsets of the partitions of `__transaction_state` that were asked for before the end of any other log;
    empty if the source cannot ask for them first."""


class Source(Protocol):
    """A cluster whose logs a backup can read."""

    cluster_id: str
    readers_max: int
    """The most logs that a backup may read from this source at the same time."""

    def ask(self) -> Asked:
        """Ask for the metadata, then for the ends of all logs, those of `__transaction_state` last."""
