"""What a backup asks of a source of logs. Every call blocks: the caller runs it beside its event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from moldau.backup.manifest import PartitionKey

ATTEMPTS_MAX: Final = 3
"""How often a source asks for all ends before it gives up."""


class LogStartMoved(Exception):
    """Retention removed the offset that was to be read."""

    def __init__(self, start_offset: int) -> None:
        super().__init__(f"the log starts at offset {start_offset} now")
        self.start_offset = start_offset


class LogReader(Protocol):
    """Reads a log from an offset on."""

    def read(self, offset: int, taken: int) -> bytes:
        """Stored bytes that begin with the batch that holds an offset, or the first one after it: at least one whole
        batch, and at the end perhaps a part of one. Empty if the log has no batch there.

        `taken`: the bytes of the last answer that the caller took; 0 at first. Raises `LogStartMoved`, and what the
        source raises.
        """

    def close(self) -> None:
        """Close files and connections."""


class SourceLog(Protocol):
    """The log of a partition between the offsets that the source was asked for."""

    @property
    def key(self) -> PartitionKey: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def place(self) -> str:
        """The place from which it is read, for a reader of the report."""

    def has(self, epoch: int, end_offset: int) -> bool:
        """Whether the log had batches of this leader epoch up to an offset (exclusive): then what an earlier backup has
        below it is what the log had."""

    def open(self) -> LogReader:
        """A reader of it."""


class MetadataSnapshot(NamedTuple):
    """The metadata of a cluster as the bytes of a KRaft snapshot."""

    end_offset: int
    epoch: int
    data: bytes


class Asked(NamedTuple):
    """A vector: what a source has, asked in the order in which it may be restored."""

    began_ms: int
    asked_ms: int
    metadata: MetadataSnapshot
    logs: Sequence[SourceLog]
    decided: Mapping[int, int] = MappingProxyType({})
    """See `Manifest.decided`."""


class Source(Protocol):
    """The logs of a cluster."""

    cluster_id: str
    readers_max: int
    """How many logs may be read at once."""

    def ask(self) -> Asked:
        """Ask for the metadata, then for the ends of all logs, `__transaction_state` last."""
