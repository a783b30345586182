"""Opening a partition's directory: restores the state of a log from its files.

    1  remove what an interrupted deletion or compaction left (`unfinished_cleaning`)
    2  open the segments; read the leader epoch checkpoint and the names of the producer snapshots
    3  after a clean shutdown trust the files, and make a missing or damaged index again (`load_after_clean_shutdown`);
       after a crash check every batch from the recovery point on (`recover_log`)
    4  compare the end of the log with the end that its other files state (`continue_after_lost_end`)
    5  bring epochs and snapshots within [log start offset, log end offset)

Files that can be derived from the batches are made again from them (`derived_files`). No checkpoint makes a start
remove whole batches, unless the machine lost what was never synced.

Each step can be interrupted by a crash at any point: the next start then repeats it.
"""

from __future__ import annotations

from functools import partial

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.leader_epochs import LeaderEpochs
from moldau.storage.checkpoints.partition_metadata import CorruptPartitionMetadata, read_topic_id
from moldau.storage.files.log_paths import LOG_SUFFIX, PARTITION_METADATA, offset_of_name
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.log.derived_files import (
    IndexChecker,
    add_missing_earlier_epochs,
    correct_epochs,
    load_epochs,
    report_missing_segments,
)
from moldau.storage.log.pending_orders import PendingEraseOrders, load_pending_orders
from moldau.storage.log.producer_replay import load_producers
from moldau.storage.log.recovery import CorruptLog, RecoveryProgress, RecoveryReport, TailRecovery
from moldau.storage.log.unfinished_cleaning import finish_unfinished_cleaning
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.storage.producers.producer_snapshot import ProducerSnapshots
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.segment.segment import Segment


class LogOpenRequest(NamedTuple):
    """The arguments with which a log is opened: its configuration, and the offsets from the checkpoints."""

    fs: FileSystem
    directory: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    clean_shutdown: bool
    now_ms: int
    report: RecoveryReport
    producer_expiration_ms: int
    cleaned_end_offset: int | None
    """The offset up to which the log was compacted, perhaps by Apache Kafka; None if it was never compacted.

    Compacted segments were flushed, although the recovery point of Apache Kafka may be before them.
    """
    checked: RecoveryProgress
    high_watermark: int = 0
    """The checkpointed high watermark. A log that has lost nothing ends at or past it."""
    may_have_lost_writes: bool = True
    """Whether data that was never synced may be lost: the machine restarted, and the recovery point could be read."""
    is_only_replica: bool = False
    """Whether no other replica has a copy of the log. It is then served even if it has lost records."""
    closed_cleanly: bool = False
    """Whether the newest producer snapshot was written by a clean stop, so that everything before it was flushed. If
    `clean_shutdown` is False nevertheless, the other files are not trusted."""


class LoadedLog(NamedTuple):
    """The state of a log that was loaded from its files, after a recovery if it was needed."""

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: ProducerSnapshots
    topic_id: bytes | None
    first_dirty_offset: int | None
    was_clean: bool
    """Whether the files were trusted and no file had to be made, so that the directory has no unsynced names."""
    erase_orders: PendingEraseOrders
    rebuilt: list[Segment]
    """The segments whose indexes were rebuilt, and have to be synced."""


def load_log(request: LogOpenRequest) -> LoadedLog:
    """Load a log from its directory, or make an empty one. Raises OSError, and `CorruptLog` if flushed bytes are
    damaged."""
    try:
        return load_from_files(request)
    except MalformedMessage as error:
        raise CorruptLog(f"{request.directory}: {error}, in a part of the log that was flushed") from error


def load_from_files(request: LogOpenRequest) -> LoadedLog:
    """Load a log from its directory, or make an empty one. Raises OSError, and `CorruptLog` or `MalformedMessage` if
    flushed bytes are damaged."""
    fs, directory = request.fs, request.directory
    fs.make_directories(directory)
    producers = ProducerStates(request.producer_expiration_ms)
    names, orphans = finish_unfinished_cleaning(fs, directory, request.report)
    is_new = not any(name.endswith(LOG_SUFFIX) for name in names)
    segments = open_segments(request, names)
    if not request.config.is_compacted and request.cleaned_end_offset is None:
        report_missing_segments(directory, segments, orphans, request.report)
    if request.config.is_tiered and segments[0].base_offset > request.log_start_offset:
        # The part before the first file here is in remote storage, and its epochs and producers are durable: they
        # were made durable before the first file was created (`truncation.py`), or before the files of that part
        # were deleted.
        request = request._replace(recovery_point=max(request.recovery_point, segments[0].base_offset))
    snapshots = ProducerSnapshots(fs, directory, names)
    trusted_end_offset = INT64_MAX if request.clean_shutdown else request.recovery_point
    epochs = load_epochs(fs, directory, segments, trusted_end_offset, request.report)
    newest_offset = newest_snapshot_offset(snapshots) if request.closed_cleanly else 0
    flushed_end_offset = max(request.recovery_point, newest_offset)
    stated_end_offset = end_offset_of_other_files(request, segments[-1], snapshots, flushed_end_offset)
    check = IndexChecker(segments, set(names), snapshots, request.report, request.log_start_offset, request.now_ms)
    end = load_after_clean_shutdown(request, segments, check, snapshots, producers)
    is_clean = end is not None
    if end is None:
        end = recover_log(request, segments, epochs, check, snapshots, producers, flushed_end_offset)
    if segments[-1].size:
        correct_epochs(epochs, segments, end.leader_epoch, request.report)
    end_offset = end.offset
    if max(end_offset, request.log_start_offset) < stated_end_offset:
        continue_after_lost_end(request, segments, producers, end_offset, stated_end_offset)
        end_offset = stated_end_offset
    log_start_offset = start_offset_of(request, segments, end_offset)
    if log_start_offset < request.log_start_offset:
        load_producers(segments, snapshots, producers, log_start_offset, end_offset, request.now_ms)
    if end_offset < log_start_offset:
        segments = [restart_at_log_start(request, segments, end_offset, log_start_offset)]
        end_offset = log_start_offset
        producers.clear(end_offset)
        epochs.clear()
    snapshots.remove_after(end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    add_missing_earlier_epochs(epochs, segments, log_start_offset, end_offset)
    trusted_end_offset = end_offset if is_clean else request.recovery_point
    erase_orders = load_pending_orders(fs, directory, segments, trusted_end_offset, end_offset)
    for segment in segments:
        segment.release()  # A start opens thousands of logs, most of which are not used for a while.
    topic_id = load_topic_id(request)
    return LoadedLog(
        segments,
        log_start_offset,
        end_offset,
        end.offset if is_clean else min(request.recovery_point, end_offset),
        epochs,
        producers,
        snapshots,
        topic_id,
        None if request.cleaned_end_offset is None else min(request.cleaned_end_offset, end_offset),
        is_clean and not is_new and not check.rebuilt_segments and end_offset == end.offset,
        erase_orders,
        [segment for segment in check.rebuilt_segments if segment in segments],
    )


def open_segments(request: LogOpenRequest, names: list[str]) -> list[Segment]:
    """Open all segments of a log, in the order of their offsets. If there is none, create the first one. Raises
    OSError."""
    fs, directory, config, now_ms = request.fs, request.directory, request.config, request.now_ms
    offsets = [offset_of_name(name) for name in names if name.endswith(LOG_SUFFIX)]
    segments = [Segment.open(fs, directory, offset, config, now_ms) for offset in offsets]
    return segments or [Segment.create(fs, directory, request.log_start_offset, config, now_ms)]


class LogEnd(NamedTuple):
    """The end of the batches of a log."""

    offset: int
    """The log end offset (exclusive)."""
    leader_epoch: int
    """The leader epoch of the last batch; -1 if none was read."""


def newest_snapshot_offset(snapshots: ProducerSnapshots) -> int:
    """The offset of the newest producer snapshot; 0 if there is none."""
    return snapshots.offsets[-1] if snapshots.offsets else 0


def end_offset_of_other_files(
    request: LogOpenRequest, active: Segment, snapshots: ProducerSnapshots, flushed_end_offset: int
) -> int:
    """Return the offset that the log must reach according to at least two of its other files, because one file alone
    may be damaged. These files are the checkpoints, the newest producer snapshot and the index of the active segment.

    After a crash the result is at most the offset up to which the log is known to be flushed.
    """
    stated = [flushed_end_offset, request.high_watermark, newest_snapshot_offset(snapshots)]
    if active.size and not (flushed_end_offset and request.high_watermark):
        stated.append(active.indexed_end_offset())
    agreed = sorted(stated)[-2]
    return agreed if request.clean_shutdown else min(agreed, flushed_end_offset)


def continue_after_lost_end(
    request: LogOpenRequest, segments: list[Segment], producers: ProducerStates, end_offset: int, stated_end_offset: int
) -> None:
    """Let a log that has lost its last records continue at `stated_end_offset`, so that no offset is used twice. Raises
    OSError, and `CorruptLog` if another replica has the records.
    """
    lost = (
        f"{request.directory}: the log ends at offset {end_offset}, and its checkpoints say {stated_end_offset}:"
        f" the records from offset {end_offset} to {stated_end_offset - 1} are gone"
    )
    if not request.is_only_replica:
        raise CorruptLog(lost)
    request.report(f"{lost}; the log goes on at offset {stated_end_offset}")
    if not segments[-1].size:
        remove_files(request.fs, [segments.pop()])
    segments.append(Segment.create(request.fs, request.directory, stated_end_offset, request.config, request.now_ms))
    producers.map_end_offset = stated_end_offset


def restart_at_log_start(
    request: LogOpenRequest, segments: list[Segment], end_offset: int, log_start_offset: int
) -> Segment:
    """Remove all segments of a log that ends before its log start offset because its end was lost. Returns the new
    first segment, which begins at the log start offset. Raises OSError."""
    request.report(
        f"{request.directory}: the log ends at offset {end_offset}, before its start offset {log_start_offset}:"
        f" emptied, it goes on at its start offset; {sum(each.size for each in segments)} bytes are removed"
    )
    # Made before the others go: a start takes a directory without a segment for that of a new log, and forgets the
    # start offset.
    first = Segment.create(request.fs, request.directory, log_start_offset, request.config, request.now_ms)
    remove_files(request.fs, segments)
    return first


def start_offset_of(request: LogOpenRequest, segments: list[Segment], end_offset: int) -> int:
    """Return the log start offset of the checkpoint, or the first offset of the log if that is later or the checkpoint
    is wrong.

    A checkpointed start past the end of the log is wrong, unless the machine may have lost the end of the log.
    """
    first_offset = 0 if request.config.is_tiered else segments[0].base_offset
    start_offset = request.log_start_offset
    if start_offset > end_offset and (request.clean_shutdown or not request.may_have_lost_writes):
        request.report(
            f"{request.directory}: the log ends at offset {end_offset}, so that its checkpointed start offset"
            f" {start_offset} is wrong: it begins at offset {first_offset}"
        )
        start_offset = first_offset
    return max(start_offset, first_offset)


def load_topic_id(request: LogOpenRequest) -> bytes | None:
    """Read the topic id from partition.metadata. Return None if there is no file.

    A crash may have torn the file of a log that was never flushed; such a file is removed. If the log promises
    durability, the file is read past the page cache after a crash, because the page cache may show what a failed sync
    did not write. Raises `CorruptPartitionMetadata` if the file is damaged and was synced before, and OSError.
    """
    fs, path = request.fs, f"{request.directory}/{PARTITION_METADATA}"
    if request.config.promises_flush and not request.clean_shutdown and fs.exists(path):
        opened = OpenFile(fs.open(path))
        opened.file.evict()
    try:
        return read_topic_id(fs, request.directory)
    except CorruptPartitionMetadata as error:
        if request.clean_shutdown or request.recovery_point:
            raise
        request.report(f"{error}: a crash tore the file, which is removed")
        fs.unlink(path)
        return None


def load_after_clean_shutdown(
    request: LogOpenRequest,
    segments: list[Segment],
    check: IndexChecker,
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
) -> LogEnd | None:
    """Load a log after a clean shutdown, without reading its batches. Returns the end of the log. Returns None if the
    log has to be recovered: the shutdown was not clean, or the last segment does not end with a whole batch.

    An index is rebuilt if it is missing or cannot be right. The end of the log is found from the last index entry of
    the last segment. Raises OSError and `MalformedMessage`.
    """
    if not request.clean_shutdown:
        return None
    last_slot = len(segments) - 1
    check.rebuild_flawed_indexes_before(last_slot)
    active = segments[last_slot]
    try:
        flaw = check.flaw_of(last_slot)
        tail = active.find_tail() if flaw is None else None
        if tail is None or not check.transaction_index_ends_before(last_slot, tail.end_offset):
            check.rebuild_indexes(last_slot, flaw or f"an index of {active.path(LOG_SUFFIX)} is damaged")
            tail = active.find_tail()
    except MalformedMessage:
        return None
    if tail is None or tail.end_position != active.size:
        return None
    load_producers(segments, snapshots, producers, request.log_start_offset, tail.end_offset, request.now_ms)
    return LogEnd(tail.end_offset, tail.leader_epoch)


def recover_log(
    request: LogOpenRequest,
    segments: list[Segment],
    epochs: LeaderEpochs,
    check: IndexChecker,
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    flushed_end_offset: int,
) -> LogEnd:
    """Check the log from the recovery point on, after a crash. Returns its end. The segments after a truncated one are
    removed from the disk and from `segments`. Raises `CorruptLog`, OSError and `MalformedMessage`."""
    directory = request.directory
    # The last segment that begins before the recovery point holds it; everything before that segment was flushed.
    slot = max((i for i, segment in enumerate(segments) if segment.base_offset < request.recovery_point), default=0)
    check.rebuild_flawed_indexes_before(slot)
    # A snapshot past the recovery point may describe batches that were lost in the crash.
    snapshots.remove_after(flushed_end_offset)
    flaws = [check.flaw_of(each) for each in range(slot, len(segments))]
    for segment, flaw in zip(segments[slot:], flaws, strict=True):
        if flaw is not None:
            check.empty_indexes(segment, flaw)
    load_producers_for_recovery(request, segments, slot, check, snapshots, producers, is_sound=flaws[0] is None)
    # Past the recovery point the checkpoint may be older or newer than the batches, which are read in any case.
    epochs.truncate_from_end(request.recovery_point)
    tail = TailRecovery(
        request.recovery_point,
        producers,
        epochs,
        request.report,
        request.checked,
        size=sum(segment.size for segment in segments[slot:]),
        log_start_offset=request.log_start_offset,
        asks_disk=request.config.promises_flush,
        may_cut_batches=request.may_have_lost_writes and not request.clean_shutdown,
        is_only_replica=request.is_only_replica,
        may_cut_flushed=request.is_only_replica and request.clean_shutdown,
        flushed_end_offset=flushed_end_offset,
    )
    gaps_end_offset = request.cleaned_end_offset or 0
    if request.config.is_compacted:
        gaps_end_offset = max(request.recovery_point, gaps_end_offset)
    for number, segment in enumerate(segments[slot:], slot + 1):
        later = segments[number:]
        is_whole = tail.recover_segment(segment, later, request.now_ms)
        if later:
            if not is_whole or not tail.may_keep_next_segment(later, gaps_end_offset):
                reason = "they do not continue the log that was recovered"
                size = sum(each.size for each in later)
                start = later[0].base_offset
                request.report(f"{directory}: removed the segments from offset {start} on, {size} bytes: {reason}")
                remove_files(request.fs, later)
                del segments[number:]
                break
            snapshots.write(producers)  # A roll would have written this snapshot; later truncations restore from it.
    if tail.next_offset < request.recovery_point and segments[-1].size:
        ends = f"the log ends at offset {tail.next_offset}, before its recovery point {request.recovery_point}"
        request.report(f"{directory}: {ends}; its start offset is {request.log_start_offset}")
    return LogEnd(tail.next_offset, tail.last_epoch)


def load_producers_for_recovery(
    request: LogOpenRequest,
    segments: list[Segment],
    slot: int,
    check: IndexChecker,
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    *,
    is_sound: bool,
) -> None:
    """Restore the producer state at the beginning of the segment at index `slot`, from which recovery begins. Raises
    OSError and `MalformedMessage`.

    `is_sound`: whether the indexes of the segment are sound. A snapshot between the beginning of the segment and the
    recovery point is then used, and the batches before the snapshot are not replayed.
    """
    base_offset = segments[slot].base_offset
    load = partial(
        load_producers,
        segments[:slot],
        snapshots,
        producers,
        request.log_start_offset,
        base_offset,
        request.now_ms,
        earlier=segments[: slot + 1],
    )
    load(max(base_offset, request.recovery_point) if is_sound else base_offset)
    if is_sound and check.may_lack_aborts(slot, producers):
        load(base_offset)  # The replay of the whole segment adds its aborted transactions again.


def remove_files(fs: FileSystem, segments: list[Segment]) -> None:
    """Close segments and unlink their files at once, the newest first: a crash in between leaves a log without a gap.
    They are not renamed to `.deleted` first, as retention renames them, because a truncated end of the log must not
    come back. Raises OSError."""
    for segment in reversed(segments):
        segment.close()
        for suffix in segment.existing_suffixes():
            fs.unlink(segment.path(suffix))
