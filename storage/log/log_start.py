"""Moving the start of a log: DeleteRecords hides what is before an offset, retention deletes the oldest segments.

Files are first renamed to `.deleted` and removed after file.delete.delay.ms, because readers may still hold a place in
them. Of a tiered log, local retention deletes segments whose copies are finished: that moves the local log start offset
and leaves the log start offset of the partition.
"""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from moldau.storage.files.log_paths import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from moldau.storage.log.log_state import LogState
from moldau.storage.log.retention import deletable_count
from moldau.storage.segment.segment import Segment


def advance_log_start(log: LogState, offset: int, high_watermark: int) -> ErrorCode:
    """Hide everything before an offset; segments that are wholly before it are deleted by the next retention check.

    OFFSET_OUT_OF_RANGE past the high watermark; an offset at or before the start changes nothing.
    """
    if offset > high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.lowered_start_offset = None  # The start offset of a truncation that was not carried out.
        log.epochs.truncate_from_start(offset)
    return ErrorCode.NONE


def delete_old_segments(log: LogState, now_ms: int, high_watermark: int) -> list[str]:
    """Remove the segments that retention deletes from the log. Returns the paths of their files, renamed to `.deleted`.

    The caller removes the files after file.delete.delay.ms. The check also closes the descriptors of the segments that
    stay; the next reader opens them again. Raises OSError: the log has failed, or there were too many open files.
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
            tiered_end_offset=log.tiered_end_offset,
        )
        if count == len(log.segments) and not has_rolled(log, now_ms):
            # A full disk has no room for a new segment: the last one stays, and deleting its neighbours makes room.
            count -= 1
    except OSError as error:
        log.fail_unless_passing(error)
        raise
    if not log.config.is_tiered and log.log_start_offset < log.segments[0].base_offset:
        # The topic is not tiered any more: the part that is not local is given up.
        advance_log_start(log, log.segments[0].base_offset, log.end_offset)
    if not count:
        return []
    try:
        if log.config.is_tiered and log.epochs.is_dirty:
            log.epochs.write()  # A later start cannot read the epochs from batches that are removed here.
        deleted = log.segments[:count]
        del log.segments[:count]
        if not log.config.is_tiered or log.config.remote_log_copy_disable:
            advance_log_start(log, log.segments[0].base_offset, high_watermark)
        log.directory_is_dirty = True
        for stray in [each for each in log.snapshots.offsets if each < log.segments[0].base_offset]:
            if all(stray != segment.base_offset for segment in deleted):
                log.snapshots.remove(stray)  # A clean shutdown wrote this snapshot in the middle of a segment.
        return [path for segment in deleted for path in rename_deleted(log, segment)]
    except OSError as error:
        log.fail(error)
        raise


def has_rolled(log: LogState, now_ms: int) -> bool:
    """Roll, so that all earlier segments can be deleted. False where the disk has no room for a new segment."""
    try:
        log.roll(now_ms)
    except OSError as error:
        log.fail_unless_passing(error)
        return False
    return True


def rename_deleted(log: LogState, segment: Segment) -> list[str]:
    """Rename the files of a segment and the snapshot at its start, so that no start finds them again.

    Returns the new paths.
    """
    paths = [segment.path(suffix) for suffix in segment.existing_suffixes()]
    if segment.base_offset in log.snapshots.offsets:
        paths.append(segment.path(SNAPSHOT_SUFFIX))
        log.snapshots.forget(segment.base_offset)
    segment.close()
    for path in paths:
        log.fs.rename(path, path + DELETED_SUFFIX)
    return [path + DELETED_SUFFIX for path in paths]
