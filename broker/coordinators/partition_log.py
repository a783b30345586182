"""The interface through which the runner of a coordinator's state machine uses a partition of an internal topic."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from moldau.coordinator.runtime.machine import TransactionWrite
from moldau.protocol.errors import ErrorCode
from moldau.replication.partition import HighWatermarkListener, Partition
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.log.append import AppendResult
from moldau.storage.log.log import Log
from moldau.storage.producers.verification import VerificationGuard


class CoordinatorLog(Protocol):
    """A partition of an internal topic that this broker leads, as a coordinator reads and writes it."""

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append(self, batch: bytes, wall_ms: int, transaction: TransactionWrite | None = None) -> ErrorCode:
        """Append one batch, whole or not at all. Returns NONE, or the error with which the log refuses the batch.

        `transaction` is given if the batch belongs to a producer's transaction, or ends it. The callbacks of `watch`
        may be called before this returns.
        """

    def delete_before(self, offset: int) -> ErrorCode:
        """Delete the records before `offset`, which is committed, and return the error."""

    def watch(self, moved: Callable[[], None]) -> None:
        """Call `moved` at every move of the high watermark, until `unwatch`."""

    def unwatch(self, moved: Callable[[], None]) -> None: ...

    def report_damage(self, reason: str) -> None:
        """Note that a batch of the log is damaged, so that another replica must lead the partition."""

    def report_failure(self, error: OSError) -> None:
        """Note that the disk failed to read the log, so that another replica must lead the partition."""

    def slice_at(self, offset: int, size_max: int) -> FileSlice | None:
        """The stored batches from the one that holds `offset` on: at most `size_max` bytes, but at least one batch.
        Returns None if the log cannot be read. Raises OSError if the process has no free file descriptor.
        """


class LeaderLog:
    """The log of a `moldau.replication.partition.Partition`, as a `CoordinatorLog`.

    `flush` syncs a log soon; it is called after an append if the settings of the log ask for a sync.
    """

    def __init__(self, partition: Partition, flush: Callable[[Log], None], required_acks: int) -> None:
        self._partition = partition
        self._required_acks = required_acks
        self._flush = flush
        self._listeners: dict[Callable[[], None], HighWatermarkListener] = {}

    @property
    def index(self) -> int:
        return self._partition.index

    @property
    def leader_epoch(self) -> int:
        return self._partition.leader_epoch

    @property
    def start_offset(self) -> int:
        return self._partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def append(self, batch: bytes, wall_ms: int, transaction: TransactionWrite | None = None) -> ErrorCode:
        error = self._appended(batch, wall_ms, transaction).error
        if self._partition.awaits_flush:
            self._flush(self._partition.log)
        return error

    def _appended(self, batch: bytes, wall_ms: int, transaction: TransactionWrite | None) -> AppendResult:
        append, acks = self._partition.append_internal, self._required_acks
        if transaction is None:
            return append(batch, wall_ms, required_acks=acks)
        if transaction.end is not None:
            return append(batch, wall_ms, transaction_version=transaction.end.transaction_version, required_acks=acks)
        assert transaction.guard is None or isinstance(transaction.guard, VerificationGuard)
        return append(batch, wall_ms, guard=transaction.guard, required_acks=acks)

    def delete_before(self, offset: int) -> ErrorCode:
        return self._partition.delete_records_before(offset)

    def watch(self, moved: Callable[[], None]) -> None:
        listener = self._listeners[moved] = HighWatermarkListener(moved)
        self._partition.add_listener(listener)

    def unwatch(self, moved: Callable[[], None]) -> None:
        listener = self._listeners.pop(moved, None)
        if listener is not None:
            self._partition.remove_listener(listener)

    def report_damage(self, reason: str) -> None:
        self._partition.log.mark_damaged(reason)

    def report_failure(self, error: OSError) -> None:
        self._partition.log.fail_log(error)

    def slice_at(self, offset: int, size_max: int) -> FileSlice | None:
        log = self._partition.log
        read = log.read(offset, size_max, end_offset=log.end_offset, at_least_one=True)
        if read is ErrorCode.KAFKA_STORAGE_ERROR and log.failure is None:
            raise OSError(errno.EMFILE, "no file descriptor", log.directory)
        return None if isinstance(read, ErrorCode) else read.slice
