"""Making a log durable: the files that a flush has to sync, and the offsets that are durable after it.

A flush has three steps, because the syncs may take seconds and the log is appended to meanwhile:

    pending_flush           event loop         collects the files to sync, and the end offset that they cover
    FlushWork.sync_files    executor thread    syncs the files
    finish_flush            event loop         advances `synced_end_offset` and `recovery_point`, unless the log was
                                               truncated meanwhile

The leader epoch checkpoint is also written between flushes (`pending_epoch_write`), by a `FlushWork` that syncs nothing
else. A log has only one `FlushWork` under way at a time. After a failed sync the log has failed: the kernel has dropped
the pages that it could not write, so a second sync would succeed without having written them.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from operator import attrgetter

from moldau.storage.log.flush_work import FlushWork
from moldau.storage.log.log_state import NO_FLUSH, LogState

_base_offset = attrgetter("base_offset")


def flush_is_due(log: LogState, now_ms: int) -> bool:
    """Whether the log has unflushed records and flush.messages or flush.ms requires a flush now."""
    unflushed_count = log.end_offset - log.synced_end_offset
    return unflushed_count > 0 and (
        unflushed_count >= log.config.flush_messages or now_ms - log.last_flush_ms >= log.config.flush_ms
    )


def pending_flush(log: LogState, end_offset: int | None) -> FlushWork | None:
    """Return the work that makes the log durable up to `end_offset` (None: all of it). None if there is nothing to do,
    a flush is in progress, or the log has failed.
    """
    end_offset = log.end_offset if end_offset is None else min(end_offset, log.end_offset)
    if log.flush_end_offset != NO_FLUSH or log.failure is not None or not needs_flush(log, end_offset):
        return None
    try:
        return begin_flush(log, end_offset)
    except OSError as error:
        log.fail_log(error)
        return None


def needs_flush(log: LogState, end_offset: int) -> bool:
    """Whether offsets before `end_offset` are past the recovery point, or file names were added or removed since the
    last sync of the directory."""
    return end_offset > log.recovery_point or log.directory_is_dirty


def write_producer_snapshot(log: LogState) -> None:
    """Write a producer snapshot at the log end offset. After the next flush a recovery begins there: it neither checks
    the batches before the snapshot nor reads their headers. Raises OSError, and then leaves the log as it was.

    An earlier snapshot within the active segment is removed. Snapshots at the start of a segment stay.
    """
    snapshots = log.snapshots
    if not snapshots.write(log.producers):
        return
    log.unsynced_paths.append(snapshots.path(log.producers.map_end_offset))
    log.directory_is_dirty = True
    bases = {segment.base_offset for segment in log.segments}
    for offset in [each for each in snapshots.offsets[:-1] if each not in bases and each > log.active.base_offset]:
        snapshots.remove(offset)


def begin_flush(log: LogState, end_offset: int) -> FlushWork:
    """Begin a flush up to `end_offset`: collect the files to sync, and remove them from the log's lists of unsynced
    files. Raises OSError."""
    slot = max(0, bisect_right(log.segments, log.recovery_point, key=_base_offset) - 1)
    reached = [segment for segment in log.segments[slot:] if segment.base_offset <= end_offset]
    # Truncated segments before the recovery point hold nothing new, but without a sync a crash would restore the
    # truncated bytes behind their end.
    reached += [segment for segment in log.cut_segments if segment in log.segments[:slot]]
    log.cut_segments.clear()
    checkpoints = [(each.path, each.encode()) for each in (log.epochs, log.erase_orders) if each.is_dirty]
    directories = [log.directory] if log.directory_is_dirty else []
    if log.parent_is_dirty:
        directories.append(log.directory.rpartition("/")[0])
    work = FlushWork(log.fs, reached, log.unsynced_paths, checkpoints, directories, end_offset)
    log.unsynced_paths = []
    log.directory_is_dirty = log.parent_is_dirty = False
    log.epochs.note_written()
    log.erase_orders.note_written()
    log.flush_end_offset = end_offset
    log.flush_in_flight = work
    return work


def pending_epoch_write(log: LogState) -> FlushWork | None:
    """Return the work that writes only the leader epoch checkpoint. None if the file is up to date, a flush is in
    progress, or the log has failed.

    After a loss of power the checkpoint may name epochs whose batches are lost. Recovery therefore drops the epochs
    from the recovery point on, and reads them from the batches.
    """
    if log.flush_end_offset != NO_FLUSH or log.failure is not None or not log.epochs.is_dirty:
        return None
    end_offset = log.recovery_point  # Nothing past it becomes durable.
    work = FlushWork(log.fs, [], [], [(log.epochs.path, log.epochs.encode())], [], end_offset, is_of_epochs=True)
    log.epochs.note_written()
    log.flush_end_offset = end_offset
    log.flush_in_flight = work
    return work


def finish_flush(log: LogState, work: FlushWork, now_ms: int) -> None:
    """Apply the result of a finished flush to the log.

    The log is durable up to `flush_end_offset`, which a truncation during the flush has lowered. The recovery point
    moves only if the checkpoints of leader epochs and of erase orders were written, too, because recovery reads neither
    from batches before the recovery point.
    """
    if work.is_postponed:
        return postpone_flush(log, work)
    work.note_cut()
    log.synced_end_offset = max(log.synced_end_offset, log.flush_end_offset)
    if work.is_complete:
        log.recovery_point = max(log.recovery_point, min(log.flush_end_offset, log.recovery_point_max))
    else:
        _checkpoints_not_written(log, work)
    log.flush_in_flight = None
    log.flush_end_offset = NO_FLUSH
    if not work.writes_only_epochs:
        log.last_flush_ms = now_ms
    log.note_change()


def postpone_flush(log: LogState, work: FlushWork) -> None:
    """Put the files of a flush back into the log's lists of unsynced files, because too many files were open."""
    log.flush_in_flight = None
    log.flush_end_offset = NO_FLUSH
    log.unsynced_paths = work.paths + log.unsynced_paths
    if not work.writes_only_epochs:
        log.directory_is_dirty = log.parent_is_dirty = True
    log.cut_segments += [segment for segment in work.segments if segment.base_offset < log.recovery_point]
    for segment in work.segments:
        segment.note_not_synced()
    _checkpoints_not_written(log, work)


def _checkpoints_not_written(log: LogState, work: FlushWork) -> None:
    log.epochs.note_not_written()
    if not work.writes_only_epochs:
        log.erase_orders.note_not_written()


def fail_flush(log: LogState, error: OSError) -> None:
    """Fail the log, because a sync failed."""
    log.flush_end_offset = NO_FLUSH
    log.flush_in_flight = None
    log.fail_log(error)


def flush(log: LogState, now_ms: int, end_offset: int | None) -> None:
    """Flush the log up to `end_offset` (None: the log end offset) in the calling thread, which blocks. No other flush
    may be under way.

    Raises OSError. The log has then failed, except with EMFILE: too many files were open, and the log is unchanged.
    """
    assert log.flush_end_offset == NO_FLUSH, "two flushes of one log at once"
    if log.failure is not None:
        raise log.failure
    end_offset = log.end_offset if end_offset is None else min(end_offset, log.end_offset)
    if not needs_flush(log, end_offset):
        return
    try:
        work = begin_flush(log, end_offset)
        work.sync_files()
    except OSError as error:
        fail_flush(log, error)
        raise
    finish_flush(log, work, now_ms)
    if work.is_postponed:
        raise OSError(errno.EMFILE, "too many open files to sync", log.directory)
