"""Moving the start of a log: DeleteRecords hides the records before an offset, and retention deletes the oldest
segments.

Retention goes by log start offset, size and time. Files are first renamed to `.deleted` and removed after
file.delete.delay.ms, because readers may still hold a slice of them. Local retention of a tiered log deletes only
segments whose copies are finished. It moves the local log start offset, but not the log start offset of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.protocol.errors import ErrorCode
from moldau.storage.files.log_paths import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from moldau.storage.log.log_state import LogState
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment import Segment


def advance_log_start(log: LogState, offset: int, high_watermark: int) -> ErrorCode:
    """Advance the log start offset, so that readers no longer see the records before `offset`. The next retention check
    deletes the segments that are wholly before it.

    Returns OFFSET_OUT_OF_RANGE if the offset is past the high watermark. An offset at or before the log start offset
    changes nothing.
    """
    if offset > high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.lowered_start_offset = None  # The start offset of a truncation that was not carried out.
        log.epochs.truncate_from_start(offset)
        log.note_change()
    return ErrorCode.NONE


def delete_old_segments(log: LogState, now_ms: int, high_watermark: int) -> list[str]:
    """Remove the segments that retention deletes from the log. Returns the paths of their files, renamed to `.deleted`.

    The caller removes the files after file.delete.delay.ms. The call also closes the descriptors of the remaining
    segments, which the next reader opens again. Raises OSError: after a transient error nothing has changed, after any
    other error the log has failed. Raises `MalformedMessage` if a batch header is damaged.
    """
    if log.failure is not None or (log.config.is_tiered and log.is_checkpoint_under_way):
        return []  # The leader epochs of what is deleted have to be durable first: the next check deletes it.
    try:
        log.release_files()
        count = deletable_count(
            log.segments,
            log.config,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
            tiered_end_offset=min(log.tiered_end_offset, log.erase_orders.kept_offset),
        )
        if count == len(log.segments) and (not try_roll(log, now_ms) or log.config.copies_segments):
            # It stays until it is copied. Or a full disk has no room for a new segment, and deleting its neighbours
            # makes room.
            count -= 1
    except OSError as error:
        log.fail_unless_transient(error)
        raise
    if not log.config.is_tiered and log.log_start_offset < log.segments[0].base_offset:
        # The topic is not tiered any more: the part that is not local is given up.
        advance_log_start(log, log.segments[0].base_offset, log.end_offset)
    if not count:
        return []
    try:
        if log.config.is_tiered and log.epochs.is_dirty:
            log.epochs.write()  # A later start cannot read the epochs from batches that are removed here.
    except OSError as error:
        log.fail_unless_transient(error)
        raise
    try:
        deleted = log.segments[:count]
        del log.segments[:count]
        if not log.config.copies_segments:
            advance_log_start(log, log.segments[0].base_offset, high_watermark)
        log.erase_orders.truncate_from_start(log.segments[0].base_offset)
        log.directory_is_dirty = True
        log.note_change()
        for stray in [each for each in log.snapshots.offsets if each < log.segments[0].base_offset]:
            if all(stray != segment.base_offset for segment in deleted):
                log.snapshots.remove(stray)  # A clean shutdown wrote this snapshot in the middle of a segment.
        return [path for segment in deleted for path in rename_deleted(log, segment)]
    except OSError as error:
        log.fail_log(error)
        raise


def try_roll(log: LogState, now_ms: int) -> bool:
    """Roll the active segment, so that all earlier segments can be deleted. Returns False if no new segment could be
    made; unless the error is transient, as on a full disk, the log has then failed."""
    try:
        log.roll(now_ms)
    except OSError as error:
        log.fail_unless_transient(error)
        return False
    return True


def rename_deleted(log: LogState, segment: Segment, *, keeps_snapshot: bool = False) -> list[str]:
    """Rename the files of a deleted or replaced segment, and the producer snapshot at its start unless
    `keeps_snapshot`, to `.deleted`, so that no start finds them again. Returns the new paths. Readers go on reading the
    open file.

    The snapshot may be missing: another tool has removed it, or a restore that could not read it.
    """
    paths = [segment.path(suffix) for suffix in segment.existing_suffixes()]
    if not keeps_snapshot and segment.base_offset in log.snapshots.offsets:
        log.snapshots.drop_offset(segment.base_offset)
        paths += filter(log.fs.exists, [segment.path(SNAPSHOT_SUFFIX)])
    segment.close()
    for path in paths:
        log.fs.rename(path, path + DELETED_SUFFIX)
    return [path + DELETED_SUFFIX for path in paths]


IsDue = Callable[[Segment, int], bool]
"""A rule of retention: returns whether a segment may be deleted. Called with the segment and the base offset of the
next one."""


def deletable_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
    tiered_end_offset: int = 0,
) -> int:
    """Count the oldest segments that retention may delete.

    If the log is tiered and its segments are copied, only local retention deletes, and only segments whose copies are
    finished: everything before `tiered_end_offset` is in remote storage. A segment with an offset at or past the high
    watermark stays, because a follower may not have it yet. The active segment counts if all of it is committed; the
    caller then rolls it first. In a log whose segments are copied it only rolls it: the copy comes first. Timestamps
    are read from the files, so it raises OSError and `MalformedMessage`.
    """
    starts = [segment.base_offset for segment in segments[1:]]
    replicated_count = sum(start <= high_watermark for start in starts)
    if len(starts) == replicated_count and end_offset <= high_watermark and segments[-1].size:
        starts.append(end_offset)
        replicated_count += 1
    if config.copies_segments:
        replicated = starts[:replicated_count]
        return _deletable_tiered(segments, config, replicated, log_start_offset, tiered_end_offset, now_ms)
    count = 0
    for is_due in deletion_rules(segments, config, log_start_offset, now_ms):
        while count < replicated_count and is_due(segments[count], starts[count]):
            count += 1
    return count


def _deletable_tiered(
    segments: Sequence[Segment],
    config: LogConfig,
    starts: Sequence[int],
    log_start_offset: int,
    tiered_end_offset: int,
    now_ms: int,
) -> int:
    """Return the number of oldest segments of a tiered log whose local files may be deleted.

    The active segment counts if local retention is due for it, because it is copied only once it is rolled. A segment
    before the log start offset may be deleted without a copy.

    DIVERGES: if the timestamp of a copied segment is in the future, Apache Kafka 4.3.1 keeps its local files, and those
    of all later segments, until that time is reached (mended in later versions). Here the time at which the file was
    last changed decides instead. The copy stays for as long as retention.ms says.
    """
    excess_size = sum(segment.size for segment in segments) - config.local_retention_bytes
    has_size, has_time = config.local_retention_bytes >= 0, config.local_retention_ms >= 0
    count = 0
    for segment, next_start in zip(segments, starts, strict=False):
        is_active = segment is segments[-1]
        is_hidden = next_start <= log_start_offset and not is_active
        is_due = (has_size and excess_size >= segment.size) or (
            has_time and now_ms - segment.local_retention_timestamp_ms(now_ms) > config.local_retention_ms
        )
        if not is_hidden and not (is_due and (next_start <= tiered_end_offset or is_active)):
            break
        excess_size -= segment.size
        count += 1
    return count


def deletion_rules(segments: Sequence[Segment], config: LogConfig, log_start_offset: int, now_ms: int) -> list[IsDue]:
    """Return the rules of retention that apply to a log, in Kafka's order. Each rule continues at the segment at which
    the rule before it stopped.
    """
    last = segments[-1]
    rules: list[IsDue] = [lambda segment, next_start: segment is not last and next_start <= log_start_offset]
    if config.has_delete_policy:
        if config.retention_bytes >= 0:
            rules.append(size_rule(segments, config.retention_bytes, log_start_offset))
        if config.retention_ms >= 0:
            rules.append(lambda segment, _: now_ms - segment.largest_timestamp() > config.retention_ms)
    return rules


def size_rule(segments: Sequence[Segment], retention_bytes: int, log_start_offset: int) -> IsDue:
    """The rule of retention.bytes: a segment may be deleted if the log without it still has at least `retention_bytes`.
    Segments before the log start offset do not count, because an earlier rule has deleted them."""
    hidden_count = sum(later.base_offset <= log_start_offset for later in segments[1:])
    excess_size = sum(segment.size for segment in segments[hidden_count:]) - retention_bytes

    def is_due(segment: Segment, _: int) -> bool:
        nonlocal excess_size
        if excess_size < segment.size:
            return False
        excess_size -= segment.size
        return True

    return is_due
