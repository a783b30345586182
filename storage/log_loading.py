"""Opening a partition's directory: which files are there, which are left over, and what state they amount to."""

from __future__ import annotations

from typing import NamedTuple

from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.log_paths import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
    offset_of_name,
)
from storage.producer_snapshot import SnapshotFiles
from storage.producer_state import ProducerStates
from storage.recovery import Report, TailRecovery, replay_producers
from storage.segment import Segment
from storage.text_checkpoint import CorruptCheckpoint


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


class LoadedLog(NamedTuple):
    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: SnapshotFiles


def load_log(request: LogRequest) -> LoadedLog:
    """Raises `CorruptLog` where durable bytes are damaged, OSError where the disk fails."""
    fs, directory = request.fs, request.directory
    fs.make_directories(directory)
    names = remove_leftovers(fs, directory, fs.list_directory(directory))
    segments = open_segments(request, names)
    epochs = load_epochs(request)
    snapshots = SnapshotFiles(fs, directory, names)
    producers = ProducerStates(request.producer_expiration_ms)
    if request.clean_shutdown:
        end_offset = believe(request, segments, snapshots, producers)
        recovery_point = end_offset
    else:
        end_offset = recover(request, segments, epochs, snapshots, producers)
        recovery_point = min(request.recovery_point, end_offset)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    if end_offset < log_start_offset:
        request.report(f"{directory}: ends at offset {end_offset}, before its start {log_start_offset}: emptied")
        segments, end_offset, recovery_point = (
            start_over(request, segments, log_start_offset),
            log_start_offset,
            log_start_offset,
        )
        producers.clear(end_offset)
        epochs.clear()
    snapshots.remove_after(end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    for segment in segments:
        segment.release()
    return LoadedLog(segments, log_start_offset, end_offset, recovery_point, epochs, producers, snapshots)


def remove_leftovers(fs: FileSystem, directory: str, names: list[str]) -> list[str]:
    """Remove what an interrupted deletion, cleaning or rename left behind; the names that remain."""
    leftover = {name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))}
    kept = set(names) - leftover
    leftover |= {
        name
        for name in kept
        if name.endswith(SEGMENT_SUFFIXES[1:]) and name.rpartition(".")[0] + LOG_SUFFIX not in kept
    }
    for name in sorted(leftover):
        fs.unlink(f"{directory}/{name}")
    return sorted(kept - leftover)


def open_segments(request: LogRequest, names: list[str]) -> list[Segment]:
    """All segments in order; a new first one in an empty directory."""
    fs, directory, config, now_ms = request.fs, request.directory, request.config, request.now_ms
    present = set(names)
    segments = []
    for name in names:
        if name.endswith(LOG_SUFFIX):
            segment = Segment.open(fs, directory, offset_of_name(name), config, now_ms)
            if (
                not {offset_name(segment.base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
                <= present
            ):
                request.report(f"{segment.path(LOG_SUFFIX)}: an index is missing: made again")
                rebuild_indexes(segment)
            segments.append(segment)
    return segments or [Segment.create(fs, directory, request.log_start_offset, config, now_ms)]


def rebuild_indexes(segment: Segment) -> None:
    """Make the indexes again from the headers, up to a batch that is not whole: checking the log is recovery's."""
    segment.reset_indexes()
    for position, header in segment.headers():
        segment.note_appended(position, header.size, header.last_offset, header.max_timestamp)
    segment.seal()


def load_epochs(request: LogRequest) -> LeaderEpochs:
    try:
        return LeaderEpochs.load(request.fs, request.directory)
    except CorruptCheckpoint as error:
        request.report(f"{error}: leader epochs are read from the batches")
        return epochs_of_batches(request)


def epochs_of_batches(request: LogRequest) -> LeaderEpochs:
    epochs = LeaderEpochs(request.fs, request.directory, [])
    for name in request.fs.list_directory(request.directory):
        if name.endswith(LOG_SUFFIX):
            base_offset = offset_of_name(name)
            segment = Segment.open(request.fs, request.directory, base_offset, request.config, request.now_ms)
            for _, header in segment.headers():
                if header.partition_leader_epoch > epochs.latest_epoch:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
    return epochs


def believe(request: LogRequest, segments: list[Segment], snapshots: SnapshotFiles, producers: ProducerStates) -> int:
    """After a clean shutdown: the end offset. An index of the last segment that cannot be right is made again."""
    active = segments[-1]
    if not (active.offset_index.is_sound() and active.time_index.is_sound()):
        request.report(f"{active.path(LOG_SUFFIX)}: an index is damaged: made again")
        rebuild_indexes(active)
    end_offset = active.next_offset()
    load_producers(segments, snapshots, producers, request.log_start_offset, end_offset, request.now_ms)
    return end_offset


def recover(
    request: LogRequest,
    segments: list[Segment],
    epochs: LeaderEpochs,
    snapshots: SnapshotFiles,
    producers: ProducerStates,
) -> int:
    """After a crash: check from the recovery point on; the end offset. Segments past a cut leave the list."""
    slot = max((i for i, segment in enumerate(segments) if segment.base_offset <= request.recovery_point), default=0)
    snapshots.remove_after(request.recovery_point)
    base_offset = segments[slot].base_offset
    load_producers(
        segments[:slot],
        snapshots,
        producers,
        request.log_start_offset,
        base_offset,
        request.now_ms,
        max(base_offset, request.recovery_point),
    )
    tail = TailRecovery(request.recovery_point, producers, epochs, request.report)
    for recovered_count, segment in enumerate(segments[slot:], 1):
        if not tail.recover(segment, request.now_ms):
            remove_segments(request, segments[slot + recovered_count :])
            del segments[slot + recovered_count :]
    if tail.next_offset < request.recovery_point and segments[-1].size:
        ends = f"ends at offset {tail.next_offset}, before its recovery point {request.recovery_point}"
        request.report(f"{request.directory}: {ends}")
    return tail.next_offset


def load_producers(
    segments: list[Segment],
    snapshots: SnapshotFiles,
    producers: ProducerStates,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    snapshot_offset_max: int | None = None,
) -> None:
    """The newest snapshot, then the batches of the segments, which end at an offset, that it does not cover."""
    latest = snapshots.load_latest(log_start_offset, end_offset if snapshot_offset_max is None else snapshot_offset_max)
    if latest is None:
        producers.clear(log_start_offset)
    else:
        producers.restore(latest[1], latest[0], now_ms)
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


def start_over(request: LogRequest, segments: list[Segment], offset: int) -> list[Segment]:
    remove_segments(request, segments)
    return [Segment.create(request.fs, request.directory, offset, request.config, request.now_ms)]
