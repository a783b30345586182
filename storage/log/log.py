"""One partition's log: an ordered list of segments behind one façade."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter

from protocol.errors import ErrorCode
from protocol.primitives import BytesLike
from protocol.record_validation import PRODUCE_VERSION_OF_ZSTD, Refusal, ValidBatch
from storage.checkpoints.leader_epochs import EpochEnd
from storage.checkpoints.partition_metadata import write_topic_id
from storage.files.disk_errors import PASSING
from storage.files.port import FileSystem
from storage.log import log_append, log_follow, log_read, log_truncation, timestamp_lookup
from storage.log.append_result import AppendOrigin, AppendResult
from storage.log.flush_work import FlushWork
from storage.log.log_config import LogConfig
from storage.log.log_loading import LoadedLog, LogRequest, load_log
from storage.log.log_paths import parse_partition_directory
from storage.log.log_read import Boundaries, LogRead
from storage.log.recovery import Report
from storage.log.timestamp_lookup import TimestampedOffset
from storage.producers.producer_state import PRODUCER_EXPIRATION_MS
from storage.segment.segment import Segment
from storage.segment.transaction_index import AbortedTransaction

NO_FLUSH = -1
_base_offset = attrgetter("base_offset")


class Log:
    """Synchronous. All methods belong to the loop, save `FlushWork.run` and the reading of a slice.

    A refusal is a value. An OSError of append or flush marks the log as failed: `failure` says why, and everything that
    would write is refused from then on, because what the disk holds is no longer known.
    """

    __slots__ = (
        "_directory_is_dirty",
        "_end_offset_at_release",
        "_flush_end_offset",
        "_flush_in_flight",
        "_parent_is_dirty",
        "_unsynced_paths",
        "active",
        "boundaries",
        "config",
        "cut_segments",
        "directory",
        "end_offset",
        "epochs",
        "failure",
        "fs",
        "last_flush_ms",
        "log_start_offset",
        "on_damage",
        "on_failure",
        "on_shortage",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "synced_end_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, fs: FileSystem, directory: str, config: LogConfig, loaded: LoadedLog, now_ms: int) -> None:
        name = parse_partition_directory(directory.rpartition("/")[2])
        self.fs = fs
        self.directory = directory
        self.config = config
        self.topic = name.topic if name else ""
        self.partition = name.partition if name else -1
        self.topic_id = loaded.topic_id
        self.segments = loaded.segments
        self.active = loaded.segments[-1]
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.synced_end_offset = loaded.recovery_point
        """Everything before it is durable. The recovery point may stay behind for want of room for the checkpoint."""
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.failure: OSError | None = None
        self.on_failure: Callable[[OSError], None] | None = None
        """Told of the failure: what broke one log breaks its neighbours in the directory."""
        self.on_damage: Callable[[Log, str], None] | None = None
        """Told, in the midst of a read, that batches are not what was written."""
        self.on_shortage: Callable[[OSError], None] | None = None
        """Told of each refusal that may pass."""
        self.last_flush_ms = now_ms
        self.boundaries = Boundaries()
        self._directory_is_dirty = self._parent_is_dirty = not loaded.was_clean
        self._unsynced_paths: list[str] = []
        before = [segment for segment in self.segments if segment.base_offset < self.recovery_point]
        self.cut_segments = [] if loaded.was_clean else before[-1:]
        """Truncated since the last flush, by the process before this one perhaps."""
        self._flush_end_offset = NO_FLUSH
        self._flush_in_flight: FlushWork | None = None
        self._end_offset_at_release = loaded.end_offset

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
        report: Report | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        cleaned_end_offset: int = 0,
    ) -> Log:
        """Open or make the log of a partition's directory. Raises `CorruptLog` and OSError."""
        request = LogRequest(
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
        )
        return cls(fs, directory, config, load_log(request), now_ms)

    @property
    def size(self) -> int:
        """Bytes of all .log files."""
        return sum(segment.size for segment in self.segments)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata; a directory never changes its topic. Raises OSError."""
        if self.topic_id is None:
            self._unsynced_paths.append(write_topic_id(self.fs, self.directory, topic_id))
            self._directory_is_dirty = True
            self.topic_id = topic_id
        assert self.topic_id == topic_id, f"{self.directory} belongs to another topic"

    # Writing

    def append_as_leader(
        self,
        records: BytesLike,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = log_append.CLIENT,
        produce_version: int = PRODUCE_VERSION_OF_ZSTD,
    ) -> AppendResult:
        """See `log_append.append_from_client` and `append_internal`."""
        if origin is log_append.CLIENT:
            return log_append.append_from_client(self, records, leader_epoch, now_ms, produce_version)
        return log_append.append_internal(self, records, leader_epoch, now_ms, origin)

    def append_examined(self, examined: ValidBatch | Refusal, leader_epoch: int, now_ms: int) -> AppendResult:
        """See `log_append.append_examined`."""
        return log_append.append_examined(self, examined, leader_epoch, now_ms)

    def append_as_follower(self, records: BytesLike, leader_epoch: int, now_ms: int) -> AppendResult:
        """See `log_follow.append_as_follower`."""
        return log_follow.append_as_follower(self, records, leader_epoch, now_ms)

    def roll(self, now_ms: int, base_offset: int = 0) -> Segment:
        """Open a new segment at the end, or where the next batch is to begin. Raises OSError with the log as it was."""
        base_offset = max(base_offset, self.end_offset)
        if not self.active.size and self.active.base_offset == base_offset:
            return self.active
        self.active.seal()
        self.snapshots.write(self.producers)
        self._directory_is_dirty = True
        segment = Segment.create(self.fs, self.directory, base_offset, self.config, now_ms)
        self.segments.append(segment)
        self.active = segment
        self.boundaries.clear()
        return segment

    def forget_after_end(self) -> None:
        """The log was truncated: what was known of the bytes past its end holds no more."""
        self.boundaries.clear()
        self._flush_end_offset = min(self._flush_end_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self.synced_end_offset = min(self.synced_end_offset, self.end_offset)
        self._directory_is_dirty = True

    def release_files(self) -> None:
        """Give back descriptors that nobody used lately: those of rolled segments, and of a log at rest all of them."""
        in_use = self.active if self.end_offset != self._end_offset_at_release else None
        self._end_offset_at_release = self.end_offset
        for segment in self.segments:
            if segment is not in_use:
                segment.release()

    def mark_directory_dirty(self) -> None:
        """Names changed: the next flush makes them durable."""
        self._directory_is_dirty = True

    def fail(self, error: OSError) -> None:
        """The disk refused: nothing is written here any more."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def damaged(self, reason: str) -> None:
        """Bytes that were whole are not what they were: this log serves no more, its neighbours do."""
        if self.failure is None:
            self.failure = OSError(errno.EBADMSG, reason, self.directory)
            if self.on_damage is not None:
                self.on_damage(self, reason)

    def fail_unless_passing(self, error: OSError) -> None:
        """As `fail`, but a full disk or a lack of descriptors is only this caller's. It has changed nothing."""
        if error.errno not in PASSING:
            self.fail(error)
        elif self.on_shortage is not None:
            self.on_shortage(error)

    # Reading

    def read(
        self, offset: int, size_max: int, *, end_offset: int, at_least_one: bool, waits: bool = True
    ) -> LogRead | ErrorCode:
        """See `log_read.read`."""
        return log_read.read(self, offset, size_max, end_offset, at_least_one, waits)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """See `timestamp_lookup.offset_for_timestamp`."""
        return timestamp_lookup.offset_for_timestamp(self, timestamp)

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """See `timestamp_lookup.offset_of_max_timestamp`."""
        return timestamp_lookup.offset_of_max_timestamp(self)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        return self.epochs.end_offset_for(leader_epoch, self.end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a read-committed reader must stop. High watermarks never go back: what is decided is forgotten."""
        self.producers.on_high_watermark(high_watermark)
        unstable = self.producers.first_unstable_offset()
        return high_watermark if unstable is None else min(high_watermark, max(unstable, self.log_start_offset))

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that overlap a range of offsets."""
        found: list[AbortedTransaction] = []
        slot = max(0, bisect_right(self.segments, first_offset, key=_base_offset) - 1)
        for segment in self.segments[slot:]:
            more, is_complete = segment.transaction_index.collect(first_offset, end_offset)
            found += more
            if is_complete:
                break
        return found

    def segment_end_offset(self, base_offset: int) -> int:
        """Where the segment with this base offset ends: one read never goes past it."""
        slot = bisect_right(self.segments, base_offset, key=_base_offset)
        return self.segments[slot].base_offset if slot < len(self.segments) else self.end_offset

    # Taking away

    def lower_recovery_point(self, offset: int) -> None:
        """Before a truncation: the owner makes the lowered point durable first."""
        self.recovery_point = min(self.recovery_point, offset)

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """See `log_truncation.truncate_to`."""
        return log_truncation.truncate_to(self, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """See `log_truncation.truncate_fully_and_start_at`."""
        log_truncation.truncate_fully_and_start_at(self, offset, now_ms)

    def advance_log_start(self, offset: int, high_watermark: int) -> ErrorCode:
        """See `log_truncation.advance_log_start`."""
        return log_truncation.advance_log_start(self, offset, high_watermark)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[str]:
        """See `log_truncation.delete_old_segments`."""
        return log_truncation.delete_old_segments(self, now_ms, high_watermark)

    # Flushing

    @property
    def unflushed_count(self) -> int:
        """Offsets that a loss of power could take."""
        return self.end_offset - self.synced_end_offset

    def flush_is_due(self, now_ms: int) -> bool:
        """By flush.messages or flush.ms."""
        unflushed_count = self.end_offset - self.synced_end_offset
        return unflushed_count > 0 and (
            unflushed_count >= self.config.flush_messages or now_ms - self.last_flush_ms >= self.config.flush_ms
        )

    def pending_flush(self, end_offset: int | None = None) -> FlushWork | None:
        """What must be synced so that everything before an offset is durable.

        None where it is already, where a flush is under way, and in a log that failed.

        Run it off the loop, then call `flushed`, or `flush_failed` with its error.
        """
        end_offset = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if self._flush_end_offset != NO_FLUSH or self.failure is not None or not self._needs_flush(end_offset):
            return None
        try:
            return self._flush_work(end_offset)
        except OSError as error:
            self.fail(error)
            return None

    def _needs_flush(self, end_offset: int) -> bool:
        """Batches past the recovery point, or a truncation that a crash could undo."""
        return end_offset > self.recovery_point or self._directory_is_dirty

    def _flush_work(self, end_offset: int) -> FlushWork:
        slot = max(0, bisect_right(self.segments, self.recovery_point, key=_base_offset) - 1)
        reached = [segment for segment in self.segments[slot:] if segment.base_offset <= end_offset]
        reached += [segment for segment in self.cut_segments if segment in self.segments[:slot]]
        self.cut_segments.clear()
        checkpoint = (self.epochs.path, self.epochs.encode()) if self.epochs.is_dirty else None
        directories = [self.directory] if self._directory_is_dirty else []
        if self._parent_is_dirty:
            directories.append(self.directory.rpartition("/")[0])
        work = FlushWork(self.fs, reached, self._unsynced_paths, checkpoint, directories, end_offset)
        self._unsynced_paths = []
        self._directory_is_dirty = self._parent_is_dirty = False
        self.epochs.note_written()
        self._flush_end_offset = end_offset
        self._flush_in_flight = work
        return work

    def flushed(self, work: FlushWork, now_ms: int) -> None:
        """The work is done: what it covered survives a crash, less what was truncated meanwhile. Where it is postponed,
        all of it is still to be done."""
        if work.is_postponed:
            return self._flush_postponed(work)
        self.synced_end_offset = max(self.synced_end_offset, self._flush_end_offset)
        if work.is_complete:
            self.recovery_point = max(self.recovery_point, self._flush_end_offset)
        else:
            self.epochs.note_not_written()
        self._flush_in_flight = None
        self._flush_end_offset = NO_FLUSH
        self.last_flush_ms = now_ms

    def _flush_postponed(self, work: FlushWork) -> None:
        self._flush_in_flight = None
        self._flush_end_offset = NO_FLUSH
        self._unsynced_paths = work.paths + self._unsynced_paths
        self._directory_is_dirty = self._parent_is_dirty = True
        self.cut_segments += [segment for segment in work.segments if segment.base_offset < self.recovery_point]
        for segment in work.segments:
            segment.note_not_synced()
        self.epochs.note_not_written()

    def flush_failed(self, error: OSError) -> None:
        """The kernel has dropped the pages that it could not write: a second sync would lie. The log is lost to us."""
        self._flush_end_offset = NO_FLUSH
        self._flush_in_flight = None
        self.fail(error)

    def flush(self, now_ms: int, end_offset: int | None = None) -> None:
        """Flush here and now, blocking; no other flush is under way. Raises OSError, and marks the log as failed."""
        assert self._flush_end_offset == NO_FLUSH
        if self.failure is not None:
            raise self.failure
        end_offset = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if not self._needs_flush(end_offset):
            return
        work = self._flush_work(end_offset)
        try:
            work.run()
        except OSError as error:
            self.flush_failed(error)
            raise
        self.flushed(work, now_ms)
        if work.is_postponed:
            raise OSError(errno.EMFILE, "too many open files to sync", self.directory)

    def close(self, now_ms: int, *, clean: bool, syncs_parent: bool = True) -> None:
        """Clean: write everything out and leave a directory that needs no recovery. Raises OSError.

        Without `syncs_parent` the owner makes the name of the directory durable, once for all its logs.
        """
        self._parent_is_dirty = self._parent_is_dirty and syncs_parent
        if self._flush_in_flight is not None:
            self._flush_in_flight.is_abandoned = True
        if clean and self.failure is None:
            assert self._flush_in_flight is None, "nobody has heard whether what it was to write is there"
            self.active.seal()
            self.snapshots.write(self.producers)
            self.epochs.truncate_from_end(self.end_offset)  # an epoch in which nobody wrote: the next start drops it
            self.flush(now_ms)
            if self.epochs.is_dirty:
                self.epochs.write()
            self.recovery_point = self.synced_end_offset = self.end_offset
        for segment in self.segments:
            segment.close()


def ignore_report(_: str) -> None:
    """For callers that show no progress."""
