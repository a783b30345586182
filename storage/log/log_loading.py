"""Opening a partition's directory: which files are there, which are left over, and what state they amount to."""

from __future__ import annotations

from typing import NamedTuple

from protocol.primitives import MalformedMessage
from storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, EpochStart, LeaderEpochs
from storage.checkpoints.partition_metadata import CorruptPartitionMetadata, read_topic_id
from storage.checkpoints.text_checkpoint import CorruptCheckpoint
from storage.files.port import FileSystem
from storage.log.log_config import INT64_MAX, LogConfig
from storage.log.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    offset_of_name,
)
from storage.log.recovery import CorruptLog, Report, TailRecovery, replay_producers
from storage.log.unfinished_cleaning import remove_leftovers
from storage.producers.producer_snapshot import SnapshotFiles
from storage.producers.producer_state import ProducerStates
from storage.producers.producer_tail import remember_repeats
from storage.segment.segment import Segment


class LogRequest(NamedTuple):
    """What the owner knows of a log before it is opened."""

    fs: FileSystem
    directory: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    clean_shutdown: bool
    now_ms: int
    report: Report
    producer_expiration_ms: int
    cleaned_end_offset: int
    """As far as Apache Kafka compacted it: what is compacted was flushed, and the recovery point may not say so yet."""


class LoadedLog(NamedTuple):
    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: SnapshotFiles
    topic_id: bytes | None
    was_clean: bool
    """Nothing was changed on the way."""


def load_log(request: LogRequest) -> LoadedLog:
    """Raises `CorruptLog` where durable bytes are damaged, OSError where the disk fails."""
    fs, directory = request.fs, request.directory
    fs.make_directories(directory)
    producers = ProducerStates(request.producer_expiration_ms)
    try:
        names = remove_leftovers(fs, directory)
        is_new = not any(name.endswith(LOG_SUFFIX) for name in names)
        segments = open_segments(request, names)
        snapshots = SnapshotFiles(fs, directory, names)
        epochs = load_epochs(request, segments)
        if request.clean_shutdown:
            end_offset = recovery_point = believe(request, segments, snapshots, producers, set(names))
        else:
            end_offset = recover(request, segments, epochs, snapshots, producers, set(names))
            recovery_point = min(request.recovery_point, end_offset)
    except MalformedMessage as error:
        raise CorruptLog(f"{directory}: {error}, in a place that was flushed") from error
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    if end_offset < log_start_offset:
        request.report(f"{directory}: ends at offset {end_offset}, before its start {log_start_offset}: emptied")
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
        raise CorruptLog(f"{directory}: {error}, before what is known of leader epochs") from error
    for segment in segments:
        segment.release()
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
        request.clean_shutdown and not is_new,
    )


def open_segments(request: LogRequest, names: list[str]) -> list[Segment]:
    """All segments in order; a new first one in an empty directory."""
    fs, directory, config, now_ms = request.fs, request.directory, request.config, request.now_ms
    offsets = [offset_of_name(name) for name in names if name.endswith(LOG_SUFFIX)]
    segments = [Segment.open(fs, directory, offset, config, now_ms) for offset in offsets]
    return segments or [Segment.create(fs, directory, request.log_start_offset, config, now_ms)]


def replace_missing_indexes(request: LogRequest, segments: list[Segment], names: set[str]) -> None:
    for segment in segments:
        expected = {offset_name(segment.base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
        if not expected <= names and segment.size:
            request.report(f"{segment.path(LOG_SUFFIX)}: an index is missing: made again")
            rebuild_indexes(segment)


def rebuild_indexes(segment: Segment) -> None:
    """Make the indexes again from the headers. Raises `MalformedMessage`."""
    segment.reset_indexes()
    for position, header in segment.headers():
        segment.note_appended(position, header.size, header.last_offset, header.max_timestamp)
    segment.seal()


def load_epochs(request: LogRequest, segments: list[Segment]) -> LeaderEpochs:
    """From the checkpoint, or where that is damaged from the batches that need no recovery."""
    try:
        return LeaderEpochs.load(request.fs, request.directory)
    except CorruptCheckpoint as error:
        request.report(f"{error}: leader epochs are read from the batches")
    trusted_end_offset = INT64_MAX if request.clean_shutdown else request.recovery_point
    epochs = LeaderEpochs(request.fs, request.directory, epochs_of_batches(segments, 0, trusted_end_offset))
    epochs.note_not_written()
    return epochs


def complete_epochs(epochs: LeaderEpochs, segments: list[Segment], log_start_offset: int, end_offset: int) -> None:
    """A crash may take back where the log begins, and not what was noted of its epochs: those before the first that is
    known are read from the batches. A follower of such an epoch would be told that its log agrees. Raises
    `MalformedMessage`.

    DIVERGES: Apache Kafka knows the epochs of its checkpoint alone.
    """
    known_from = epochs.entries[0].start_offset if epochs.entries else end_offset
    if known_from <= log_start_offset:
        return
    earlier = epochs_of_batches(segments, log_start_offset, known_from)
    if earlier:
        epochs.precede(earlier)


def epochs_of_batches(segments: list[Segment], start_offset: int, end_offset: int) -> list[EpochStart]:
    """Of those that begin before an offset, and end after another. Raises `MalformedMessage`."""
    found: list[EpochStart] = []
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, header in segment.headers():
            if header.base_offset >= end_offset:
                break
            is_new = header.partition_leader_epoch > (found[-1].epoch if found else UNDEFINED_EPOCH)
            if is_new and header.next_offset > start_offset:
                found.append(EpochStart(header.partition_leader_epoch, max(header.base_offset, start_offset)))
    return found


def load_topic_id(request: LogRequest) -> bytes | None:
    """A crash may have torn the file of a new directory: then the metadata log says again whose it is."""
    try:
        return read_topic_id(request.fs, request.directory)
    except CorruptPartitionMetadata as error:
        if request.clean_shutdown:
            raise
        request.report(f"{error}: removed")
        request.fs.unlink(f"{request.directory}/{PARTITION_METADATA}")
        return None


def believe(
    request: LogRequest,
    segments: list[Segment],
    snapshots: SnapshotFiles,
    producers: ProducerStates,
    names: set[str],
) -> int:
    """After a clean shutdown: the end offset. An index of the last segment that cannot be right is made again."""
    replace_missing_indexes(request, segments[:-1], names)
    active = segments[-1]
    if not active.has_sound_indexes():
        request.report(f"{active.path(LOG_SUFFIX)}: an index is damaged: made again")
        rebuild_indexes(active)
    end_offset = active.next_offset()
    snapshot_offset_max = active.base_offset if cleared_transactions(request, active) else end_offset
    load_producers(
        segments, snapshots, producers, request.log_start_offset, end_offset, request.now_ms, snapshot_offset_max
    )
    return end_offset


def cleared_transactions(request: LogRequest, segment: Segment) -> bool:
    """Empty a transaction index that is damaged: the aborts are noted again when the producers of its batches are."""
    if segment.has_sound_transaction_index():
        return False
    request.report(f"{segment.path(TRANSACTION_INDEX_SUFFIX)}: damaged: made again")
    segment.transaction_index.clear()
    return True


def recover(
    request: LogRequest,
    segments: list[Segment],
    epochs: LeaderEpochs,
    snapshots: SnapshotFiles,
    producers: ProducerStates,
    names: set[str],
) -> int:
    """After a crash: check from the recovery point on; the end offset. Segments past a cut leave the list."""
    directory = request.directory
    slot = max((i for i, segment in enumerate(segments) if segment.base_offset < request.recovery_point), default=0)
    replace_missing_indexes(request, segments[:slot], names)
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
    epochs.truncate_from_end(request.recovery_point)  # past it the checkpoint may be of another time than the batches
    tail = TailRecovery(
        request.recovery_point,
        producers,
        epochs,
        request.report,
        log_start_offset=request.log_start_offset,
        asks_disk=request.config.promises_disk,
    )
    is_compacted = request.config.is_compacted
    gaps_end_offset = max(request.recovery_point, request.cleaned_end_offset) if is_compacted else 0
    for number, segment in enumerate(segments[slot:], slot + 1):
        next_base_offset = segments[number].base_offset if number < len(segments) else None
        is_whole = tail.recover(segment, next_base_offset, request.now_ms)
        if next_base_offset is not None:
            if not is_whole or not tail.reaches(next_base_offset, gaps_end_offset):
                request.report(f"{directory}: removed the segments from offset {next_base_offset} on")
                remove_segments(request, segments[number:])
                del segments[number:]
                break
            snapshots.write(producers)
    if tail.next_offset < request.recovery_point and segments[-1].size:
        ends = f"ends at offset {tail.next_offset}, before its recovery point {request.recovery_point}"
        request.report(f"{directory}: {ends}")
    return tail.next_offset


def load_producers(
    segments: list[Segment],
    snapshots: SnapshotFiles,
    producers: ProducerStates,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    snapshot_offset_max: int | None = None,
    *,
    earlier: list[Segment] | None = None,
) -> None:
    """The newest snapshot, then the batches of the segments, which end at an offset, that it does not cover.

    `earlier` are the segments that hold what the snapshot covers, where those are others.
    """
    latest = snapshots.load_latest(log_start_offset, end_offset if snapshot_offset_max is None else snapshot_offset_max)
    if latest is None:
        producers.clear(log_start_offset)
    else:
        producers.restore(latest[1], latest[0], now_ms)
        remember_repeats(earlier or segments, producers)
    for segment, next_offset in zip(
        segments, [*(later.base_offset for later in segments[1:]), end_offset], strict=False
    ):
        if producers.map_end_offset < next_offset:
            replay_producers(segment, producers, segment.size)
    producers.map_end_offset = max(producers.map_end_offset, end_offset)


def remove_segments(request: LogRequest, segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()
        for suffix in segment.existing_suffixes():
            request.fs.unlink(segment.path(suffix))
