"""Taking away from a log: its end where replicas disagree, its start where retention or an administrator says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from storage.log.log_loading import load_producers
from storage.log.log_paths import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from storage.log.retention import deletable_count
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.log import Log


def truncate_to(log: Log, offset: int, now_ms: int) -> bool:
    """Make an offset the end of the log; False where it ends there or before already. Raises OSError: the log failed;
    `MalformedMessage`: it is damaged.

    A batch that spans the offset goes whole, so the end may come out lower. The owner must have made a recovery point
    at or below the offset durable *before* it truncates: else a crash would take the new tail for damaged old bytes.
    """
    if offset >= log.end_offset:
        log.epochs.truncate_from_end(offset)
        return False
    if offset <= log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset, now_ms)
        return True
    try:
        remove_files(log, drop_segments_from(log, offset))
        log.active = log.segments[-1]
        size_before = log.active.size
        log.end_offset = log.active.truncate_to(offset, now_ms)
        log.log_start_offset = min(log.log_start_offset, log.end_offset)
        settle(log, now_ms)
        if log.active.size < size_before:
            # The cut is not durable yet. What follows goes to a segment of its own, whose name tells recovery where the
            # old bytes end, should a crash bring them back.
            log.cut_segments.append(log.active)
            log.roll(now_ms)
    except OSError as error:
        log.fail(error)
        raise
    return True


def drop_segments_from(log: Log, offset: int) -> list[Segment]:
    """Take the segments that begin at or past an offset off the list."""
    kept_count = max(1, sum(segment.base_offset < offset for segment in log.segments))
    dropped = log.segments[kept_count:]
    del log.segments[kept_count:]
    return dropped


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> None:
    """Empty the log and let it begin at an offset. Raises OSError: the log failed."""
    try:
        remove_files(log, log.segments)
        log.segments[:] = [Segment.create(log.fs, log.directory, offset, log.config, now_ms)]
        log.active = log.segments[0]
        log.end_offset = log.log_start_offset = offset
        log.epochs.clear()
        log.epochs.write()  # else the next start takes the last of the old epochs for that in which this log begins
        for snapshot_offset in list(log.snapshots.offsets):
            log.snapshots.remove(snapshot_offset)
        settle(log, now_ms)
    except OSError as error:
        log.fail(error)
        raise


def settle(log: Log, now_ms: int) -> None:
    """Bring what is derived of the batches back to the new end of the log."""
    log.forget_after_end()
    log.epochs.truncate_from_end(log.end_offset)
    log.snapshots.remove_after(log.end_offset)
    load_producers(log.segments, log.snapshots, log.producers, log.log_start_offset, log.end_offset, now_ms)


def remove_files(log: Log, segments: list[Segment]) -> None:
    """Unlink at once: a truncated tail must not come back."""
    for segment in segments:
        segment.close()
        for suffix in segment.existing_suffixes():
            log.fs.unlink(segment.path(suffix))


def advance_log_start(log: Log, offset: int, high_watermark: int) -> ErrorCode:
    """Hide everything before an offset; the segments that are wholly before it go at the next retention check.

    OFFSET_OUT_OF_RANGE past the high watermark; an offset before the start changes nothing.
    """
    if offset > high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
    return ErrorCode.NONE


def delete_old_segments(log: Log, now_ms: int, high_watermark: int) -> list[str]:
    """Take what retention gives up out of the log; the paths, renamed to `.deleted`.

    They are to be unlinked after file.delete.delay.ms. Raises OSError: the log failed, or files could not be opened.
    The descriptors of segments that stay are given back on the way: whoever reads them opens them again.
    """
    if log.failure is not None:
        return []
    try:
        log.release_files()
        count = deletable_count(
            log.segments,
            log.config,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if count == len(log.segments) and not has_rolled(log, now_ms):
            count -= 1  # without room for a new segment the last one stays, and its neighbours make room
    except OSError as error:
        log.fail_unless_passing(error)
        raise
    if not count:
        return []
    try:
        deleted = log.segments[:count]
        del log.segments[:count]
        advance_log_start(log, log.segments[0].base_offset, high_watermark)
        log.mark_directory_dirty()
        for stray in [each for each in log.snapshots.offsets if each < log.segments[0].base_offset]:
            if all(stray != segment.base_offset for segment in deleted):
                log.snapshots.remove(stray)  # of a clean stop in the middle of a segment
        return [path for segment in deleted for path in rename_deleted(log, segment)]
    except OSError as error:
        log.fail(error)
        raise


def has_rolled(log: Log, now_ms: int) -> bool:
    try:
        log.roll(now_ms)
    except OSError as error:
        log.fail_unless_passing(error)
        return False
    return True


def rename_deleted(log: Log, segment: Segment) -> list[str]:
    """Rename the files of a segment and the snapshot of its start, so that a crash does not bring them back."""
    paths = [segment.path(suffix) for suffix in segment.existing_suffixes()]
    if segment.base_offset in log.snapshots.offsets:
        paths.append(segment.path(SNAPSHOT_SUFFIX))
        log.snapshots.forget(segment.base_offset)
    segment.close()
    for path in paths:
        log.fs.rename(path, path + DELETED_SUFFIX)
    return [path + DELETED_SUFFIX for path in paths]
