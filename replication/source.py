"""The interface through which a fetch finds records, and its implementation by the local log. Remote storage has
another implementation.

The result of a read is one of the following. A read waits for the disk only if `waits` is true.

    LocatedBatches       a place in a file that holds the records
    PageCacheMiss        the lookup needs bytes that the page cache lacks: warm them on an executor thread, ask again
    PendingRemoteRead    the records are being read from remote storage: ask again when that is done
    ErrorCode            the reason why nothing can be read

The local log answers OFFSET_MOVED_TO_TIERED_STORAGE for offsets below the local log start offset of a tiered topic. A
follower gets this error; a consumer reads the offsets from the source of remote storage, if the broker has one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.replication.partition import Partition
from moldau.storage.files.file_slice import FileSlice, NotCached
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead


class FetchIsolation(Enum):
    """The isolation of a fetch, by the upper bound of what it may read. The values are Kafka's names of the bounds."""

    LOG_END = "log end offset"
    """For followers, which also replicate records that are not committed yet."""
    HIGH_WATERMARK = "high watermark"
    """For consumers that read committed records (read_uncommitted)."""
    TXN_COMMITTED = "last stable offset"
    """For consumers that read up to the first open transaction, and get the list of aborted transactions
    (read_committed)."""


LOG_END: Final = FetchIsolation.LOG_END
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
"""Module-level names for the enum members, because the lookup of an enum member costs as much as a call."""


class LocatedBatches:
    """The place in a file of the batches that a read found. The last batch may be cut short."""

    __slots__ = ("aborted_transactions", "size", "slice")

    def __init__(self, place: FileSlice | None, aborted_transactions: list[AbortedTransaction] | None = None) -> None:
        self.slice = place
        """The part of the file; None if there is nothing to read below the upper bound."""
        self.size = place.size if place is not None else 0
        self.aborted_transactions = aborted_transactions
        """With TXN_COMMITTED, the aborted transactions that may overlap the batches, sorted by first offset; None
        otherwise."""


class PageCacheMiss:
    """The result of a read that needs bytes which the page cache lacks. `log` is marked as failed if they cannot be
    read."""

    __slots__ = ("log", "place")

    def __init__(self, log: Log, place: FileSlice) -> None:
        self.log = log
        self.place = place


class PendingRemoteRead:
    """The result of a read for which remote storage is being read."""

    __slots__ = ("_is_done", "_listeners")

    def __init__(self) -> None:
        self._is_done = False
        self._listeners: list[Callable[[], None]] = []

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call the listener when the read of remote storage has ended, so that the same read gives the records or the
        error."""
        assert not self._is_done
        self._listeners.append(listener)

    def done(self) -> None:
        """Note that the read of remote storage has ended, and call the listeners."""
        self._is_done = True
        for listener in self._listeners:
            listener()


class Source(Protocol):
    """A source of records for fetches: it finds the place of records, without reading them."""

    def read(
        self,
        partition: Partition,
        offset: int,
        size_max: int,
        isolation: FetchIsolation,
        at_least_one: bool,
        waits: bool,
    ) -> LocatedBatches | PageCacheMiss | PendingRemoteRead | ErrorCode:
        """Find up to `size_max` bytes of batches, from the batch that contains `offset` on.

        If `at_least_one`, the first batch is included whole, even if it is larger. If `waits`, the lookup reads from
        the disk what the page cache lacks, and the result is never PageCacheMiss.
        """


NOTHING: Final = LocatedBatches(None)


class LocalLog:
    """The source that finds records in the local log of this broker's replica."""

    __slots__ = ()

    def read(
        self,
        partition: Partition,
        offset: int,
        size_max: int,
        isolation: FetchIsolation,
        at_least_one: bool,
        waits: bool,
    ) -> LocatedBatches | PageCacheMiss | ErrorCode:
        """Find batches in the local log, as `Source.read`. The error is OFFSET_OUT_OF_RANGE outside of the log, and
        OFFSET_MOVED_TO_TIERED_STORAGE before the local log. It is KAFKA_STORAGE_ERROR if the disk fails, or if the
        batch is not at its place in the file. The log is then marked as failed, unless the cause is temporary (no file
        descriptor is left)."""
        log = partition.log
        end_offset = upper_bound(partition, isolation)
        try:
            found = log.read(offset, size_max, end_offset=end_offset, at_least_one=at_least_one, waits=waits)
            if isinstance(found, ErrorCode):
                return found
            if isolation is not LOG_END and log.erase_orders.hidden and found.size and log.is_hidden(found.base_offset):
                return NOTHING  # Until this replica has carried out the erase order.
            aborted = None
            if isolation is TXN_COMMITTED and found.size:
                aborted = _aborted(log, offset, end_offset, found, waits)
        except NotCached as missing:
            return PageCacheMiss(log, missing.place)
        except OSError as error:  # An error of the transaction index.
            log.fail_unless_transient(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return LocatedBatches(found.slice, aborted) if found.size else NOTHING


def upper_bound(partition: Partition, isolation: FetchIsolation) -> int:
    """The offset before which a fetch with this isolation may read."""
    if isolation is HIGH_WATERMARK:
        return partition.high_watermark
    return partition.log.end_offset if isolation is LOG_END else partition.last_stable_offset


def _aborted(log: Log, fetch_offset: int, end_offset: int, read: LogRead, waits: bool) -> list[AbortedTransaction]:
    """The aborted transactions that may overlap the result of a read, in the form of the Fetch response."""
    found = log.aborted_in_read(read, fetch_offset, end_offset, waits=waits)
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in found]
