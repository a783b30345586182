"""The state of one partition's log: its segments, its offsets, and the state derived from its batches.

Each kind of operation on a log is a module of functions over this state. The rest of the broker calls them through the
façade `storage/log/log.py`:

    append          checks a batch, writes it, and updates epochs, producers and indexes
    reading         finds the position of an offset or a time in a file, and the aborted transactions of a read
    truncation      removes the end of the log, past which it differs from the leader's; or begins the log anew after
                    its remote part
    log_start       moves the start of the log, and deletes old segments by retention
    flushing        makes the log durable, and moves the recovery point
    segment_swap    replaces segments by the segments that cleaning has made of them

A log whose oldest segments are only in remote storage has two start offsets: `log_start_offset` (of the partition) and
`local_start_offset` (of the local files). Otherwise the two are equal.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter

from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.log_paths import PARTITION_METADATA, parse_partition_directory
from moldau.storage.files.port import TRANSIENT_ERRNOS, FileSystem
from moldau.storage.log.flush_work import FlushWork
from moldau.storage.log.loading import LoadedLog
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.segment.segment import Segment

NO_FLUSH = -1


class LogState:
    """The state that all operations on a log share, and the few changes that keep it consistent.

    `recovery_point` <= `synced_end_offset` <= `end_offset`, which is the log end offset (exclusive); `log_start_offset`
    <= `end_offset`. The last of `segments` is `active`: batches are only ever appended to that one.
    """

    __slots__ = (
        "active",
        "boundaries",
        "config",
        "cut_segments",
        "directory",
        "directory_is_dirty",
        "end_offset",
        "end_offset_at_release",
        "epochs",
        "erase_orders",
        "failure",
        "first_dirty_offset",
        "flush_end_offset",
        "flush_in_flight",
        "fs",
        "is_change_noted",
        "last_flush_ms",
        "log_start_offset",
        "lowered_start_offset",
        "on_change",
        "on_damage",
        "on_failure",
        "on_shortage",
        "parent_is_dirty",
        "partition",
        "prepared_producers",
        "producers",
        "recovery_point",
        "recovery_point_max",
        "segments",
        "snapshots",
        "synced_end_offset",
        "tiered_end_offset",
        "topic",
        "topic_id",
        "truncation_count",
        "unsynced_paths",
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
        self.lowered_start_offset: int | None = None
        """The log start offset after a truncation in preparation; None if it does not change. It is checkpointed before
        the truncation, because the old start would hide records that are appended later."""
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        """The offset at which recovery begins after a crash. Everything before it is durable, and so are the
        checkpointed leader epochs up to it."""
        self.recovery_point_max = INT64_MAX
        """A limit of the recovery point: the new end of the log, while a truncation is in preparation."""
        self.synced_end_offset = loaded.recovery_point
        """The offset below which every record is durable. It exceeds the recovery point if a full disk had no room for
        a checkpoint."""
        self.first_dirty_offset = loaded.first_dirty_offset
        """The offset up to which the log is cleaned, durably; None if it was never cleaned."""
        self.tiered_end_offset = 0
        """The end (exclusive) of the part whose segments are all copied to remote storage, in this log's leader epochs.

        The reader of the remote log metadata sets it. Before, it is 0, and local retention deletes nothing.
        """
        self.truncation_count = 0
        """The number of truncations of this log. It is increased before each one, so that data that other threads read
        before can be recognized as stale."""
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.prepared_producers: ProducerStates | None = None
        """The producers at the new end of the log, once they are restored for the truncation in preparation."""
        self.snapshots = loaded.snapshots
        self.erase_orders = loaded.erase_orders
        self.failure: OSError | None = None
        """The error that forbids writes to this log until the broker restarts; None if there is none."""
        self.on_failure: Callable[[OSError], None] | None = None
        """Called with the error of the disk that failed this log. Such an error takes the log directory offline."""
        self.on_change: Callable[[], None] | None = None
        self.is_change_noted = False
        self.on_damage: Callable[[str], None] | None = None
        """Called, within a read, with a description of damaged batches that the read found."""
        self.on_shortage: Callable[[OSError], None] | None = None
        """Called with each error that may be transient: a full disk, or a lack of file descriptors."""
        self.last_flush_ms = now_ms
        self.boundaries = RecentBatchPositions()
        self.directory_is_dirty = not loaded.was_clean
        """Whether file names were added or removed since the directory was last synced."""
        self.parent_is_dirty = not loaded.was_clean
        """Whether the name of this log's directory may not be durable in the log directory yet."""
        self.unsynced_paths = _unsynced(loaded, directory)
        """The paths of files, besides those of the segments, that the next flush has to sync."""
        before = [segment for segment in self.segments if segment.base_offset < self.recovery_point]
        self.cut_segments = loaded.rebuilt + ([] if loaded.was_clean else before[-1:])
        """Segments below the recovery point that were truncated since the last flush, perhaps by the process before."""
        for segment in [] if loaded.was_clean else self.segments[max(len(before) - 1, 0) :]:
            segment.note_not_synced()  # entries that were removed would come back with a loss of power
        self.flush_end_offset = NO_FLUSH
        """The offset up to which the current flush makes the log durable, which a truncation lowers; `NO_FLUSH` if no
        flush is under way."""
        self.flush_in_flight: FlushWork | None = None
        self.end_offset_at_release = loaded.end_offset

    @property
    def local_start_offset(self) -> int:
        """The first offset that can be read from local files."""
        return max(self.log_start_offset, self.segments[0].base_offset)

    @property
    def start_offset_to_checkpoint(self) -> int:
        """The log start offset to write into the checkpoint. While a truncation that lowers the start is being
        prepared, it is the new start."""
        return self.log_start_offset if self.lowered_start_offset is None else self.lowered_start_offset

    @property
    def size(self) -> int:
        """The size in bytes of all .log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_checkpoint_under_way(self) -> bool:
        """Whether the flush in progress writes the leader epoch checkpoint. No other write of the file may overlap it:
        one would remove the temporary file of the other."""
        return self.flush_in_flight is not None and self.flush_in_flight.writes_checkpoints

    @property
    def has_uncut_files(self) -> bool:
        """Whether a truncation has left the removed end of a large file to the next flush."""
        return any(segment.uncut_file is not None for segment in self.cut_segments)

    def note_change(self) -> None:
        """Note that an offset, the high watermark or the configuration changed.

        `on_change` is called only if no earlier change is waiting to be taken by a reader of the changes
        (`ChangedLogs`).
        """
        if not self.is_change_noted:
            self.is_change_noted = True
            if self.on_change is not None:
                self.on_change()

    def roll(self, now_ms: int, base_offset: int = 0) -> Segment:
        """Open a new segment at the end of the log, or at a later `base_offset` if the next batch begins there.

        If the active segment is empty and already begins there, it is kept. Raises OSError, and then leaves the log as
        it was.
        """
        base_offset = max(base_offset, self.end_offset)
        if not self.active.size and self.active.base_offset == base_offset:
            return self.active
        self.active.finish_indexes()
        # After a crash a start restores the producers from this snapshot instead of reading the whole log.
        if self.snapshots.write(self.producers):
            self.unsynced_paths.append(self.snapshots.path(self.producers.map_end_offset))
        self.directory_is_dirty = True
        segment = Segment.create(self.fs, self.directory, base_offset, self.config, now_ms)
        self.segments.append(segment)
        self.active = segment
        self.boundaries.clear()
        self.note_change()
        return segment

    def note_control_batch(self, base_offset: int) -> None:
        """Note that a control batch without a producer was appended. If it is an erase order, the order is pending from
        now on: it is carried out once it is committed. Raises OSError and `MalformedMessage`."""
        if erase_order_at(self.segments[-1:], base_offset) is not None:
            self.erase_orders.add(base_offset)

    def hide_records_to_erase(self) -> None:
        """Hide from consumers the records that pending erase orders name, until this replica has erased them."""
        try:
            self.erase_orders.hide_records(self.segments)
        except MalformedMessage as malformed:
            self.mark_damaged(str(malformed))
        except OSError as error:
            self.fail_unless_transient(error)

    def is_hidden(self, base_offset: int) -> bool:
        """Whether a pending erase order hides records of this segment."""
        slot = bisect_right(self.segments, base_offset, key=attrgetter("base_offset"))
        end_offset = self.segments[slot].base_offset if slot < len(self.segments) else self.end_offset
        return self.erase_orders.hides_offset_in(base_offset, end_offset)

    def lower_recovery_point(self, offset: int, *, empties: bool = False) -> None:
        """Prepare a truncation to `offset`: lower the checkpointed offsets (recovery point, first dirty offset, log
        start offset) to the new end. The caller makes the checkpoints durable, and then truncates, or calls
        `end_truncation`.

        A batch that spans `offset` is removed, so its base offset is then the new end. If the recovery point stayed
        past the new end, recovery would report a torn append there as damage of flushed data. With `empties` all
        batches are removed, the last ones first, and the log then begins at `offset`: the recovery point is lowered to
        the first of them.
        """
        offset = self.end_after_truncation(offset)
        self.recovery_point_max = min(offset, self.segments[0].base_offset) if empties else offset
        self.recovery_point = min(self.recovery_point, self.recovery_point_max)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.lowered_start_offset = offset if offset < self.log_start_offset else None
        self.truncation_count += 1
        self.note_change()

    def end_truncation(self) -> None:
        """End a truncation that was carried out, or that is given up after its preparation."""
        self.recovery_point_max = INT64_MAX
        self.lowered_start_offset = self.prepared_producers = None
        self.note_change()

    def end_after_truncation(self, offset: int) -> int:
        """Return the log end offset after a truncation to `offset`, which is lower if a batch spans `offset`. If the
        batch cannot be read, return the base offset of its segment."""
        if not self.segments[0].base_offset < offset < self.end_offset:
            return offset
        segment = self.segments[bisect_right(self.segments, offset, key=attrgetter("base_offset")) - 1]
        try:
            place = segment.find_batch(offset)
        except (OSError, MalformedMessage):
            return segment.base_offset  # The truncation itself meets the error.
        return min(offset, place.base_offset) if place else offset

    def forget_state_past_end(self) -> None:
        """Drop all state about the bytes past the new end, after a truncation.

        A flush in progress counts only up to the new end: later appends replace the bytes that it syncs past it.
        """
        self.erase_orders.truncate_from_end(self.end_offset)
        self.erase_orders.truncate_from_start(self.segments[0].base_offset)
        self.boundaries.clear()
        self.flush_end_offset = min(self.flush_end_offset, self.end_offset)
        self.lower_recovery_point(self.end_offset)
        self.end_truncation()
        self.synced_end_offset = min(self.synced_end_offset, self.end_offset)
        self.directory_is_dirty = True

    def release_files(self) -> None:
        """Close the descriptors of rolled segments, and of all segments if nothing was appended since the last call.
        They are opened again at their next use."""
        in_use = self.active if self.end_offset != self.end_offset_at_release else None
        self.end_offset_at_release = self.end_offset
        for segment in self.segments:
            if segment is not in_use:
                segment.release()

    def fail_log(self, error: OSError) -> None:
        """Fail the log after an error of the disk: the stored bytes are unknown, so nothing is written to this log any
        more. An error that reports damaged bytes affects only this log.
        """
        if error.errno == errno.EBADMSG:
            self.mark_damaged(str(error))
        elif self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def mark_damaged(self, reason: str) -> None:
        """Stop serving the log, because stored batches are damaged. Other logs are not affected."""
        if self.failure is None:
            self.failure = OSError(errno.EBADMSG, reason, self.directory)
            if self.on_damage is not None:
                self.on_damage(reason)

    def fail_unless_transient(self, error: OSError) -> None:
        """Fail the log as `fail_log` does, unless the error is transient (a full disk, or a lack of file descriptors).
        A transient error fails only the one operation, which must have left the log unchanged.
        """
        if error.errno not in TRANSIENT_ERRNOS:
            self.fail_log(error)
        elif self.on_shortage is not None:
            self.on_shortage(error)

    def error_of_lookup(self, error: OSError | MalformedMessage) -> ErrorCode:
        """The error code for a client whose lookup by timestamp raised `error`. The log has failed after an error of
        the disk that is not transient, and is damaged if a batch cannot be decoded. A record above the limit of the
        topic is refused, and the log stays as it is.
        """
        if isinstance(error, RecordSizeExceeded):
            return ErrorCode.INVALID_RECORD
        if isinstance(error, OSError):
            self.fail_unless_transient(error)
        else:
            self.mark_damaged(str(error))
        return ErrorCode.KAFKA_STORAGE_ERROR


def _unsynced(loaded: LoadedLog, directory: str) -> list[str]:
    """The paths of the files, besides those of the segments, that the previous process may not have synced.

    They must be synced. A start sets a log aside that has records and no topic id, and it does not write the snapshots
    before the recovery point again.
    """
    snapshots = [loaded.snapshots.path(each) for each in loaded.snapshots.offsets if each > loaded.recovery_point]
    is_id_durable = loaded.was_clean or loaded.topic_id is None
    return snapshots if is_id_durable else [f"{directory}/{PARTITION_METADATA}", *snapshots]


BOUNDARIES_KEPT = 16


class RecentBatchPositions:
    """Positions of batches in the active segment by base offset: the last `BOUNDARIES_KEPT` that were looked up.

    A reader at the end of the log asks for the offset at which its last read ended. The position of this offset is then
    known without a lookup in the index and without a read of batch headers. Truncating or rolling the log must call
    `clear`.
    """

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}  # Position by base offset.

    def get(self, offset: int) -> int | None:
        """The position of the batch that begins at `offset`; None if it is not remembered."""
        return self._positions.get(offset)

    def remember(self, offset: int, position: int) -> None:
        """Remember the position of the batch that begins at `offset`. If there are `BOUNDARIES_KEPT` entries, the
        oldest is dropped."""
        positions = self._positions
        if offset not in positions:
            if len(positions) >= BOUNDARIES_KEPT:
                del positions[next(iter(positions))]
            positions[offset] = position

    def clear(self) -> None:
        self._positions.clear()
