"""Opening a partition's directory: restores the state of a log from its files.

    1  remove what an interrupted deletion or compaction left (`unfinished_cleaning`)
    2  open the segments; read the leader epoch checkpoint and the names of the producer snapshots
    3  after a clean shutdown trust the files, and make a missing or damaged index again (`load_after_clean_shutdown`);
       after a crash check every batch from the recovery point on (`recover`)
    4  bring epochs and snapshots within [log start offset, log end offset)

Each step can be interrupted by a crash at any point: the next start then repeats it.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import MAGIC
from moldau.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, EpochStart, LeaderEpochs
from moldau.storage.checkpoints.partition_metadata import CorruptPartitionMetadata, read_topic_id
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
from moldau.storage.files.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    offset_of_name,
)
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.log.producer_replay import load_producers
from moldau.storage.log.recovery import Checked, CorruptLog, Report, TailRecovery
from moldau.storage.log.unfinished_cleaning import remove_leftovers
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.storage.producers.producer_snapshot import ProducerSnapshots
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.segment.segment import Segment


class LogRequest(NamedTuple):
    """The offsets from the checkpoints and the configuration, with which a log is opened."""

    fs: FileSystem
    directory: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    clean_shutdown: bool
    now_ms: int
    report: Report
    producer_expiration_ms: int
    cleaned_end_offset: int | None
    """The offset up to which the log was compacted, perhaps by Apache Kafka; None where it was never compacted.

    Compacted segments were flushed, although the recovery point of Apache Kafka may be before them.
    """
    checked: Checked


class LoadedLog(NamedTuple):
    """The state of a log as it was found, or recovered."""

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
    """Whether the files were trusted and none had to be made, so that no file name waits for a sync of the
    directory.
    """


def load_log(request: LogRequest) -> LoadedLog:
    """Open the log, or make an empty one. Raises `CorruptLog` where flushed bytes are damaged, and OSError."""
    fs, directory = request.fs, request.directory
    fs.make_directories(directory)
    producers = ProducerStates(request.producer_expiration_ms)
    try:
        names = remove_leftovers(fs, directory)
        is_new = not any(name.endswith(LOG_SUFFIX) for name in names)
        segments = open_segments(request, names)
        if request.config.is_tiered and segments[0].base_offset > request.log_start_offset:
            # The part before the first file here is in remote storage, and its epochs and producers are durable: they
            # were made durable before the first file was created (`truncation.py`), or before the files of that part
            # were deleted.
            request = request._replace(recovery_point=max(request.recovery_point, segments[0].base_offset))
        snapshots = ProducerSnapshots(fs, directory, names)
        epochs = load_epochs(request, segments)
        if request.clean_shutdown:
            end_offset = recovery_point = load_after_clean_shutdown(request, segments, snapshots, producers, set(names))
        else:
            end_offset = recover(request, segments, epochs, snapshots, producers, set(names))
            recovery_point = min(request.recovery_point, end_offset)
    except MalformedMessage as error:
        raise CorruptLog(f"{directory}: {error}, in a part of the log that was flushed") from error
    log_start_offset = request.log_start_offset
    if not request.config.is_tiered:
        log_start_offset = max(log_start_offset, segments[0].base_offset)
    if end_offset < log_start_offset:
        request.report(
            f"{directory}: the log ends at offset {end_offset}, before its start offset {log_start_offset}:"
            f" emptied, it goes on at its start offset"
        )
        remove_segments(request, segments)
        segments = [Segment.create(fs, directory, log_start_offset, request.config, request.now_ms)]
        end_offset = recovery_point = log_start_offset
        producers.clear(end_offset)
        epochs.clear()
    snapshots.remove_after(end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    try:
        complete_epochs(epochs, segments, log_start_offset, end_offset)
    except MalformedMessage as error:
        raise CorruptLog(f"{directory}: {error}, before the first leader epoch of the checkpoint") from error
    for segment in segments:
        segment.release()  # A start opens thousands of logs, most of which are not used for a while.
    topic_id = load_topic_id(request)
    return LoadedLog(
        segments,
        log_start_offset,
        end_offset,
        recovery_point,
        epochs,
        producers,
        snapshots,
        topic_id,
        None if request.cleaned_end_offset is None else min(request.cleaned_end_offset, end_offset),
        request.clean_shutdown and not is_new,
    )


def open_segments(request: LogRequest, names: list[str]) -> list[Segment]:
    """All segments in the order of their offsets; a new first one where there is none. Raises OSError."""
    fs, directory, config, now_ms = request.fs, request.directory, request.config, request.now_ms
    offsets = [offset_of_name(name) for name in names if name.endswith(LOG_SUFFIX)]
    segments = [Segment.open(fs, directory, offset, config, now_ms) for offset in offsets]
    return segments or [Segment.create(fs, directory, request.log_start_offset, config, now_ms)]


def replace_missing_indexes(request: LogRequest, segments: list[Segment], names: set[str]) -> None:
    """Rebuild the indexes of segments that lack one. Raises OSError and `MalformedMessage`."""
    for segment in segments:
        expected = {offset_name(segment.base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
        if not expected <= names:
            request.report(f"{segment.path(LOG_SUFFIX)}: an index file is missing and is made again from the batches")
            rebuild_indexes(segment)


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild the indexes of a segment from its batch headers. Raises OSError and `MalformedMessage`."""
    segment.reset_indexes()
    for position, header in segment.headers():
        segment.note_appended(position, header.size, header.last_offset, header.max_timestamp)
    segment.seal()


def load_epochs(request: LogRequest, segments: list[Segment]) -> LeaderEpochs:
    """Read the leader epochs from the checkpoint; where that is damaged, from the headers of the batches below the
    recovery point."""
    try:
        return LeaderEpochs.load(request.fs, request.directory)
    except CorruptCheckpoint as error:
        request.report(f"{error}: the file is made again from the leader epochs of the batches")
    trusted_end_offset = INT64_MAX if request.clean_shutdown else request.recovery_point
    epochs = LeaderEpochs(request.fs, request.directory, epochs_of_batches(segments, 0, trusted_end_offset))
    epochs.note_not_written()
    return epochs


def complete_epochs(epochs: LeaderEpochs, segments: list[Segment], log_start_offset: int, end_offset: int) -> None:
    """Read the epochs before the first of the checkpoint from the batches. Raises OSError and `MalformedMessage`.

    After a deletion at the start of the log, a crash may restore the old segments and not the old epoch checkpoint. A
    leader that does not know their epochs would tell a follower of such an epoch that their logs agree.

    DIVERGES: Apache Kafka knows the epochs of its checkpoint alone.
    """
    known_from = epochs.entries[0].start_offset if epochs.entries else end_offset
    if known_from <= log_start_offset:
        return
    earlier = epochs_of_batches(segments, log_start_offset, known_from)
    if earlier:
        epochs.precede(earlier)


def epochs_of_batches(segments: list[Segment], start_offset: int, end_offset: int) -> list[EpochStart]:
    """The epochs of the batches in [start_offset, end_offset), from their headers. Raises OSError,
    `MalformedMessage`."""
    found: list[EpochStart] = []
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, header in segment.headers():
            # Messages of formats 0 and 1 have no epoch, and the checkpoint names those of what follows them.
            if header.base_offset >= end_offset or header.magic != MAGIC:
                break
            is_new = header.partition_leader_epoch > (found[-1].epoch if found else UNDEFINED_EPOCH)
            if is_new and header.next_offset > start_offset:
                found.append(EpochStart(header.partition_leader_epoch, max(header.base_offset, start_offset)))
    return found


def load_topic_id(request: LogRequest) -> bytes | None:
    """The topic id of partition.metadata, None where there is none.

    A crash may have torn the file of a log that was never flushed. It is removed then. Like recovery, the read of a log
    that promises durability goes past the page cache, which may show what a failed sync did not write. Raises
    `CorruptPartitionMetadata` where the file is damaged and was synced before, and OSError.
    """
    fs, path = request.fs, f"{request.directory}/{PARTITION_METADATA}"
    if request.config.promises_disk and not request.clean_shutdown and fs.exists(path):
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
    request: LogRequest,
    segments: list[Segment],
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    names: set[str],
) -> int:
    """Open the log after a clean shutdown, without reading it. Returns the log end offset.

    Only the last segment is examined: its indexes are made again where they cannot be right, and its end is found from
    the last index entry. Raises OSError and `MalformedMessage`.
    """
    replace_missing_indexes(request, segments[:-1], names)
    active = segments[-1]
    if not active.has_sound_indexes():
        request.report(f"{active.path(LOG_SUFFIX)}: an index file is damaged and is made again from the batches")
        rebuild_indexes(active)
    end_offset = active.next_offset()
    snapshot_offset_max = active.base_offset if cleared_transactions(request, active) else end_offset
    load_producers(
        segments, snapshots, producers, request.log_start_offset, end_offset, request.now_ms, snapshot_offset_max
    )
    return end_offset


def cleared_transactions(request: LogRequest, segment: Segment) -> bool:
    """Empty a transaction index if it is damaged. Returns whether it was.

    The caller then replays the producers of the whole segment, which adds its aborted transactions again.
    """
    if segment.has_sound_transaction_index():
        return False
    request.report(f"{segment.path(TRANSACTION_INDEX_SUFFIX)}: damaged; made again from the transaction markers")
    segment.transaction_index.clear()
    return True


def recover(
    request: LogRequest,
    segments: list[Segment],
    epochs: LeaderEpochs,
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    names: set[str],
) -> int:
    """Check the log from the recovery point on, after a crash. Returns the log end offset. The segments after a
    truncated one are removed, also from the list. Raises `CorruptLog`, OSError and `MalformedMessage`.
    """
    directory = request.directory
    # The last segment that begins before the recovery point holds it; everything before that segment was flushed.
    slot = max((i for i, segment in enumerate(segments) if segment.base_offset < request.recovery_point), default=0)
    replace_missing_indexes(request, segments[:slot], names)
    # A snapshot past the recovery point may describe batches that were lost in the crash.
    snapshots.remove_after(request.recovery_point)
    base_offset = segments[slot].base_offset
    is_cleared = cleared_transactions(request, segments[slot])
    for segment in segments[slot + 1 :]:
        cleared_transactions(request, segment)
    load_producers(
        segments[:slot],
        snapshots,
        producers,
        request.log_start_offset,
        base_offset,
        request.now_ms,
        base_offset if is_cleared else max(base_offset, request.recovery_point),
        earlier=segments[: slot + 1],
    )
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
        asks_disk=request.config.promises_disk,
    )
    gaps_end_offset = request.cleaned_end_offset or 0
    if request.config.is_compacted:
        gaps_end_offset = max(request.recovery_point, gaps_end_offset)
    for number, segment in enumerate(segments[slot:], slot + 1):
        next_base_offset = segments[number].base_offset if number < len(segments) else None
        is_whole = tail.recover(segment, next_base_offset, request.now_ms)
        if next_base_offset is not None:
            if not is_whole or not tail.reaches(next_base_offset, gaps_end_offset):
                reason = "they do not continue the log that was recovered"
                request.report(f"{directory}: removed the segments from offset {next_base_offset} on: {reason}")
                remove_segments(request, segments[number:])
                del segments[number:]
                break
            snapshots.write(producers)  # A roll would have written this snapshot; later truncations restore from it.
    if tail.next_offset < request.recovery_point and segments[-1].size:
        ends = f"the log ends at offset {tail.next_offset}, before its recovery point {request.recovery_point}"
        request.report(f"{directory}: {ends}; its start offset is {request.log_start_offset}")
    return tail.next_offset


def remove_segments(request: LogRequest, segments: list[Segment]) -> None:
    """Unlink the files of segments. Raises OSError."""
    for segment in segments:
        segment.close()
        for suffix in segment.existing_suffixes():
            request.fs.unlink(segment.path(suffix))
