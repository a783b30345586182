"""The interface through which a fetch finds records, with its implementation for the local log.
`broker/tiering/remote_source.py` implements it for remote storage.

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
    """The isolation of a fetch, named like in Kafka by the upper bound of the offsets it may read."""

    LOG_END = "log end offset"
    """For followers, which also replicate uncommitted records."""
    HIGH_WATERMARK = "high watermark"
    """For consumers with read_uncommitted: they read up to the high watermark."""
    TXN_COMMITTED = "last stable offset"
    """For consumers with read_committed: they read up to the first open transaction, and get the list of aborted
    transactions.
    """


LOG_END: Final = FetchIsolation.LOG_END
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
"""Module-level names for the enum members, because the lookup of an enum member costs as much as a call."""


class LocatedBatches:
    """The location in a file of the batches that were found. The last one may be cut short."""

    __slots__ = ("aborted_transactions", "size", "slice")

    def __init__(self, place: FileSlice | None, aborted_transactions: list[AbortedTransaction] | None = None) -> None:
        self.slice = place
        """The part of the file with the batches; None if there is nothing to read below the upper bound."""
        self.size = place.size if place is not None else 0
        self.aborted_transactions = aborted_transactions
        """With TXN_COMMITTED, the aborted transactions that may overlap the batches, sorted by first offset; None
        otherwise."""


class PageCacheMiss:
    """The result for a read that needs bytes from the disk. `log` is marked as failed if they cannot be read."""

    __slots__ = ("log", "place")

    def __init__(self, log: Log, place: FileSlice) -> None:
        self.log = log
        self.place = place


class PendingRemoteRead:
    """The result for a read that waits for remote storage."""

    __slots__ = ("_is_done", "_listeners")

    def __init__(self) -> None:
        self._is_done = False
        self._listeners: list[Callable[[], None]] = []

    def add_done_listener(self, listener: Callable[[], None]) -> None:
        """Add a listener that is called when the read of remote storage has ended. The same read then gives records or
        an error.
        """
        assert not self._is_done
        self._listeners.append(listener)

    def mark_done(self) -> None:
        """Call the listeners, because the read of remote storage has ended."""
        self._is_done = True
        for listener in self._listeners:
            listener()


class RecordSource(Protocol):
    """A source of records for fetches: finds where records are, without reading them."""

    def find_batches(
        self,
        partition: Partition,
        offset: int,
        size_max: int,
        isolation: FetchIsolation,
        at_least_one: bool,
        waits: bool,
    ) -> LocatedBatches | PageCacheMiss | PendingRemoteRead | ErrorCode:
        """Find up to `size_max` bytes of batches, starting with the one that contains `offset`.

        `at_least_one`: include the first batch whole, even if it is larger. `waits`: read from the disk if the page
        cache lacks something, so that the result is never PageCacheMiss.
        """


NOTHING_FOUND: Final = LocatedBatches(None)


class LocalLogSource:
    """Finds records in the local log of this broker's replica."""

    __slots__ = ()

    def find_batches(
        self,
        partition: Partition,
        offset: int,
        size_max: int,
        isolation: FetchIsolation,
        at_least_one: bool,
        waits: bool,
    ) -> LocatedBatches | PageCacheMiss | ErrorCode:
        """Find batches in the local log, as `RecordSource.find_batches`. The error is OFFSET_OUT_OF_RANGE outside of
        the log, and OFFSET_MOVED_TO_TIERED_STORAGE before the local log. It is KAFKA_STORAGE_ERROR if the disk fails,
        or if the batch is not at its place in the file. The log is then marked as failed, unless the cause is temporary
        (no file descriptor is left).
        """
        log = partition.log
        end_offset = upper_bound(partition, isolation)
        try:
            found = log.read(offset, size_max, end_offset=end_offset, at_least_one=at_least_one, waits=waits)
            if isinstance(found, ErrorCode):
                return found
            if (
                isolation is not LOG_END
                and log.erase_orders.hidden_runs
                and found.size
                and log.is_hidden(found.base_offset)
            ):
                return NOTHING_FOUND  # Until this replica has carried out the erase order.
            aborted = None
            if isolation is TXN_COMMITTED and found.size:
                aborted = _aborted(log, offset, end_offset, found, waits)
        except NotCached as missing:
            return PageCacheMiss(log, missing.place)
        except OSError as error:  # An error of the transaction index.
            log.fail_unless_transient(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return LocatedBatches(found.slice, aborted) if found.size else NOTHING_FOUND


def upper_bound(partition: Partition, isolation: FetchIsolation) -> int:
    """The offset below which a fetch with this isolation may read."""
    if isolation is HIGH_WATERMARK:
        return partition.high_watermark
    return partition.log.end_offset if isolation is LOG_END else partition.last_stable_offset


def _aborted(log: Log, fetch_offset: int, end_offset: int, read: LogRead, waits: bool) -> list[AbortedTransaction]:
    """The aborted transactions that may overlap a read, as a Fetch response lists them."""
    found = log.aborted_in_read(read, fetch_offset, end_offset, waits=waits)
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in found]
