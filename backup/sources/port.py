"""The interface of a source of logs that can be backed up. Every call blocks, so the caller runs it outside of its
event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from moldau.backup.manifest import PartitionKey
from moldau.tables.refusals import Refused

ATTEMPTS_MAX: Final = 3
"""The maximum number of attempts of a source to read the metadata and all log ends, and of a backup whose logs are
deleted while it is taken.
"""


class LogStartMoved(Exception):
    """Retention deleted the offset that was to be read. `start_offset` is the new log start offset."""

    def __init__(self, start_offset: int) -> None:
        super().__init__(f"the log starts at offset {start_offset} now")
        self.start_offset = start_offset


class LogDeleted(Refused):
    """The topic of a log was deleted after the ends of the logs were listed."""


class LogReader(Protocol):
    """Reads the stored bytes of one log."""

    def read(self, offset: int, taken: int) -> bytes:
        """Read batches from the one that contains `offset`, or else from the first one after it.

        The result has at least one whole batch, and may end with a part of a batch. It is empty if the log has no such
        batch. `taken`: the number of bytes of the previous result that the caller has used; 0 at first. Raises
        `LogStartMoved`, `LogDeleted`, and what the source raises.
        """

    def close(self) -> None:
        """Close the files and connections of this reader."""


class SourceLog(Protocol):
    """The log of a partition, from its start to its end at the time when the source was read."""

    @property
    def key(self) -> PartitionKey: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def place(self) -> str:
        """The location of the log, for messages and reports."""

    def has_epoch_up_to(self, epoch: int, end_offset: int) -> bool:
        """Whether the log has batches of the leader epoch `epoch` up to `end_offset` (exclusive). If so, an earlier
        backup that ends in this epoch at `end_offset` has the same batches as the log. Raises `LogDeleted`.
        """

    def open_reader(self) -> LogReader:
        """Open a reader of this log."""


class MetadataSnapshot(NamedTuple):
    """The metadata of a cluster as the bytes of a KRaft snapshot."""

    end_offset: int
    epoch: int
    data: bytes


class LogEnds(NamedTuple):
    """The metadata and the logs of a source with their ends, read in the order of `order.py`."""

    began_ms: int
    ends_known_ms: int
    metadata: MetadataSnapshot
    logs: Sequence[SourceLog]
    transaction_log_ends: Mapping[int, int] = MappingProxyType({})
    """The end offset of each partition of `__transaction_state`, read before the end of any other log; empty if the
    source cannot read them first.
    """


class BackupSource(Protocol):
    """A source of logs that a backup can read, such as a running cluster."""

    cluster_id: str
    readers_max: int
    """The most logs that a backup may read from this source at the same time."""

    def list_log_ends(self) -> LogEnds:
        """Read the metadata, then the ends of all logs; those of `__transaction_state` last."""
