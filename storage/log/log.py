"""One partition's log: an ordered list of segments, and all operations of the broker on it."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_validation import PRODUCE_VERSION_OF_ZSTD, RejectedBatch, ValidBatch
from moldau.storage.checkpoints.leader_epochs import EpochEnd
from moldau.storage.checkpoints.partition_metadata import write_topic_id
from moldau.storage.files.port import FileSystem
from moldau.storage.log import append, flushing, log_start, reading, segment_swap, truncation
from moldau.storage.log.append import AppendOrigin, AppendResult
from moldau.storage.log.flush_work import FlushWork
from moldau.storage.log.loading import LogOpenRequest, load_log
from moldau.storage.log.log_state import LogState
from moldau.storage.log.reading import LogRead, TimestampedOffset
from moldau.storage.log.recovery import RecoveryProgress, RecoveryReport
from moldau.storage.log.segment_swap import SegmentCleaned
from moldau.storage.log.truncation import RemoteStart
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_state import PRODUCER_EXPIRATION_MS
from moldau.storage.producers.verification import NOT_REQUIRED, VerificationGuard
from moldau.storage.segment.transaction_index import AbortedTransaction


class Log(LogState):
    """One partition's log, with all operations of the broker on it. Each operation is implemented in a module of its
    own.

    Synchronous, and not thread-safe: every method runs on the event loop. Executor threads only run
    `FlushWork.sync_files` and read the bytes of a `FileSlice`.

    A refusal is a value (`ErrorCode`, `AppendResult`). After an OSError of a write or a sync the log has failed:
    `failure` has the error, and everything that would write is refused from then on.
    """

    __slots__ = ()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        now_ms: int,
        report: RecoveryReport | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        cleaned_end_offset: int | None = None,
        checked: RecoveryProgress | None = None,
        high_watermark: int = 0,
        may_have_lost_writes: bool = True,
        is_only_replica: bool = False,
        closed_cleanly: bool = False,
    ) -> Log:
        """Open the log in a partition's directory, or create an empty one. Blocks for as long as recovery takes. The
        arguments are those of `LogOpenRequest`.

        Raises `CorruptLog` if durable bytes are damaged, OSError if the disk fails.
        """
        request = LogOpenRequest(
            fs,
            directory,
            config,
            recovery_point,
            log_start_offset,
            clean_shutdown,
            now_ms,
            report or ignore_report,
            producer_expiration_ms,
            cleaned_end_offset,
            checked or ignore_progress,
            high_watermark,
            may_have_lost_writes,
            is_only_replica,
            closed_cleanly,
        )
        return cls(fs, directory, config, load_log(request), now_ms)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata with the topic id if the log has none. A log never changes its topic. Raises
        OSError."""
        if self.topic_id is None:
            self.unsynced_paths.append(write_topic_id(self.fs, self.directory, topic_id))
            self.directory_is_dirty = True
            self.topic_id = topic_id
        assert self.topic_id == topic_id, f"{self.directory} belongs to another topic"

    # Appending

    def append_as_leader(
        self,
        records: BytesLike,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = append.CLIENT,
        produce_version: int = PRODUCE_VERSION_OF_ZSTD,
        guard: VerificationGuard | None = NOT_REQUIRED,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append one batch of a client, or batches that this broker built: check them, and assign offsets and the
        leader epoch.

        `guard`: the `VerificationGuard` from the verification of the transaction that the batch opens.
        `transaction_version`: the transaction.version of the transaction that a marker ends.
        """
        if origin is append.CLIENT:
            return append.append_from_client(self, records, leader_epoch, now_ms, produce_version, guard)
        return append.append_internal(self, records, leader_epoch, now_ms, origin, guard, transaction_version)

    def append_run_as_leader(
        self, batches: list[memoryview], leader_epoch: int, now_ms: int, produce_version: int
    ) -> list[AppendResult]:
        """Append consecutive batches of one client in one write, up to the first batch that cannot be part of it. That
        batch and later ones have no result, and can still be appended one by one."""
        return append.append_run_from_client(self, batches, leader_epoch, now_ms, produce_version)

    def append_examined(
        self,
        examined: ValidBatch | RejectedBatch,
        leader_epoch: int,
        now_ms: int,
        guard: VerificationGuard | None = NOT_REQUIRED,
    ) -> AppendResult:
        """Append a client's batch whose validation is done, perhaps in an executor thread."""
        return append.append_examined(self, examined, leader_epoch, now_ms, guard)

    def append_as_follower(self, records: BytesLike, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches of a fetch response as the leader stored them. If a batch is refused, the batches before it
        stay in the log."""
        return append.append_as_follower(self, records, leader_epoch, now_ms)

    # Reading

    def read(
        self, offset: int, size_max: int, *, end_offset: int, at_least_one: bool, waits: bool = True
    ) -> LogRead | ErrorCode:
        """Find the part of a .log file with the batches from `offset` on, up to `size_max` bytes and before
        `end_offset`.

        With `at_least_one` the first batch comes whole even if it is larger. Without `waits` it raises `NotCached`
        instead of waiting for the disk.
        """
        return reading.read(self, offset, size_max, end_offset, at_least_one, waits)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at or after `timestamp` (ms); None if there is none. Raises OSError and
        `MalformedMessage`."""
        return reading.offset_for_timestamp(self, timestamp)

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp of the log; None if no record has a timestamp. Raises OSError and
        `MalformedMessage`."""
        return reading.offset_of_max_timestamp(self)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        """The end of the batches of a leader epoch (OffsetForLeaderEpoch); `UNDEFINED_END` if the log does not know the
        epoch."""
        return self.epochs.end_offset_for(leader_epoch, self.end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The last stable offset: a read_committed consumer may read the records before it.

        Drops from the producer state each transaction whose marker the high watermark has passed. This is final,
        because a high watermark does not fall.
        """
        self.producers.on_high_watermark(high_watermark)
        unstable = self.producers.first_unstable_offset()
        return high_watermark if unstable is None else min(high_watermark, max(unstable, self.log_start_offset))

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with batches in [first_offset, end_offset), which a read_committed consumer must
        skip."""
        return reading.aborted_transactions(self, first_offset, end_offset)

    def aborted_in_read(
        self, read: LogRead, first_offset: int, end_offset: int, *, waits: bool = True
    ) -> list[AbortedTransaction]:
        """The aborted transactions that may overlap the result of a read, sorted by first offset.

        Raises OSError, and without `waits` `NotCached`.
        """
        return reading.aborted_in_read(self, read, first_offset, end_offset, waits=waits)

    # Truncating and deleting

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Remove everything at or past `offset`. Returns False if there is nothing to remove. Raises OSError and
        `MalformedMessage`."""
        return truncation.truncate_to(self, offset, now_ms)

    def prepare_producers(self, offset: int, now_ms: int) -> Iterator[None]:
        """Restore the producer state for `truncate_to(offset)`, in steps of about a millisecond. `truncate_to` then
        reads no batch headers, which could take seconds. Nothing may be appended between the steps."""
        return truncation.prepare_producers(self, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove all batches; the next batch gets `offset`. Raises OSError."""
        truncation.truncate_fully_and_start_at(self, offset, now_ms)

    def start_after_remote(self, start: RemoteStart, now_ms: int) -> None:
        """Remove all batches. The log then continues after the part that is only in remote storage, with the state at
        the end of that part. Raises OSError."""
        truncation.start_after_remote(self, start, now_ms)

    def advance_log_start(self, offset: int, high_watermark: int) -> ErrorCode:
        """Advance the log start offset, so that readers no longer see the records before `offset`. Returns
        OFFSET_OUT_OF_RANGE if the offset is past the high watermark."""
        return log_start.advance_log_start(self, offset, high_watermark)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[str]:
        """Remove the segments that retention deletes.

        Returns the paths of the renamed files, which the caller removes after file.delete.delay.ms. Raises OSError and
        `MalformedMessage`.
        """
        return log_start.delete_old_segments(self, now_ms, high_watermark)

    # Compaction

    def swap_cleaned(self, cleaned: SegmentCleaned, now_ms: int) -> list[str] | None:
        """Replace segments by the segment that was cleaned from them.

        Returns the paths of the renamed files, which the caller removes after file.delete.delay.ms; None if the log has
        changed meanwhile. Raises OSError.
        """
        return segment_swap.swap_cleaned(self, cleaned, now_ms)

    def note_cleaned(self, next_dirty_offset: int, truncation_count: int) -> None:
        """Note that the log is clean before `next_dirty_offset`, after a round of cleaning whose segments and their
        names are durable.

        Nothing is noted if the log was truncated since the round began, when its truncation count was
        `truncation_count`.
        """
        if truncation_count == self.truncation_count:
            self.first_dirty_offset = next_dirty_offset
            self.note_change()

    # Flushing

    @property
    def unflushed_count(self) -> int:
        """The number of offsets whose records a loss of power could remove."""
        return self.end_offset - self.synced_end_offset

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether the log has unflushed records and flush.messages or flush.ms requires a flush now."""
        return flushing.flush_is_due(self, now_ms)

    def write_producer_snapshot(self) -> None:
        """Write a producer snapshot at the log end offset, at which a recovery begins once the log is flushed. Raises
        OSError."""
        flushing.write_producer_snapshot(self)

    def pending_flush(self, end_offset: int | None = None) -> FlushWork | None:
        """The work for an executor thread that makes everything before `end_offset` durable (None: before the log end
        offset); None if there is no such work.

        When the work has run, call `finish_flush`, or `fail_flush` with its error.
        """
        return flushing.pending_flush(self, end_offset)

    def pending_epoch_write(self) -> FlushWork | None:
        """The work for an executor thread that writes only the leader epoch checkpoint; None if the checkpoint is up to
        date.

        When the work has run, call `finish_flush`, or `fail_flush` with its error.
        """
        return flushing.pending_epoch_write(self)

    def finish_flush(self, work: FlushWork, now_ms: int) -> None:
        """Apply the result of a flush to the log, after `work.sync_files` has returned without an error."""
        flushing.finish_flush(self, work, now_ms)

    def fail_flush(self, error: OSError) -> None:
        """Fail the log, because the work of a flush raised `error`."""
        flushing.fail_flush(self, error)

    def flush(self, now_ms: int, end_offset: int | None = None) -> None:
        """Flush in the calling thread, which blocks, up to `end_offset` (None: the log end offset). Raises OSError."""
        flushing.flush(self, now_ms, end_offset)

    def close(self, now_ms: int, *, clean: bool, syncs_parent: bool = True) -> None:
        """Close all files. With `clean`, flush everything first, so that the next start need not recover.

        Without `syncs_parent` the caller makes the name of the log's directory durable, once for all its logs. Raises
        OSError.
        """
        self.epochs.on_change = None  # The owner of the log writes no more files in the background.
        self.parent_is_dirty = self.parent_is_dirty and syncs_parent
        if self.flush_in_flight is not None:
            self.flush_in_flight.is_abandoned = True
        if clean and self.failure is None:
            assert self.flush_in_flight is None, "closed cleanly while a flush is under way, whose result is not known"
            self.active.finish_indexes()
            self.snapshots.write(self.producers)
            # The next start drops an epoch without batches; so does the checkpoint.
            self.epochs.truncate_from_end(self.end_offset)
            self.flush(now_ms)
            if self.epochs.is_dirty:
                self.epochs.write()
            self.recovery_point = self.synced_end_offset = self.end_offset
            self.note_change()
        for segment in self.segments:
            segment.close()


def ignore_progress(_checked_size: int, _of_size: int) -> None:
    """Ignore the progress of a recovery: the callback of callers that do not show it."""


def ignore_report(_: str) -> None:
    """Ignore what a recovery found: the callback of callers that do not show it."""
