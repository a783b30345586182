"""Truncating a log: its end moves back to the offset up to which it agrees with the log of a new leader.

The state that is derived from the batches is truncated with them: epochs, producers, indexes, and the durable offset.
The cut itself is not durable until the next flush, so that a loss of power may bring the old bytes back. Recovery
recognizes them because batches that are appended after a truncation go into a new segment, whose base offset is the end
of the valid bytes before it.

The part of a tiered log before its local files is in remote storage, and a truncation of the local files leaves it as
it is: the log keeps its log start offset, its leader epochs and the producer snapshot at its end.

A follower whose log ends before the leader's local log begins starts after the remote part (`start_after_remote`): its
local files begin where the leader's local log begins, or a little before.

    1  the local segments and snapshots are unlinked, durably        a crash: an empty log at the log start offset
    2  the producer snapshot and the leader epochs are written       the same: no part of them is within that log
    3  the first segment is created, durably                         a crash: the log as it is meant to be

Until the next checkpoint the recovery point lies below the first segment. A start takes everything before the first
segment of a tiered log as durable (`loading.py`), so it uses the snapshot and the epochs of step 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.files.port import TRANSIENT_ERRNOS
from moldau.storage.log.loading import remove_files
from moldau.storage.log.log_start import try_roll
from moldau.storage.log.log_state import LogState
from moldau.storage.log.producer_replay import load_in_steps, load_producers
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.segment.segment import Segment


def truncate_to(log: LogState, offset: int, now_ms: int) -> bool:
    """Truncate the log to `offset`. Returns False if the log already ends at or before it.

    A batch that spans the offset is removed whole, so the log may end before the offset. The caller must have made a
    recovery point at or below the new end durable *before* the call. Otherwise, after a crash, recovery would find torn
    batches below the old recovery point, and would report damage of flushed data.

    Raises OSError, after which the log has failed, and `MalformedMessage`, after which the log is damaged.
    """
    if offset >= log.end_offset:
        # No batch is removed, but an epoch without batches may begin at the end of the log.
        log.epochs.truncate_from_end(offset)
        log.end_truncation()
        return False
    first_offset = log.segments[0].base_offset
    has_remote_part = log.config.is_tiered and log.log_start_offset < offset
    if offset <= first_offset and not has_remote_part:
        truncate_fully_and_start_at(log, offset, now_ms)
        return True
    try:
        if offset < first_offset:
            remove_local_part(log, offset, now_ms)
            return True
        remove_files(log.fs, drop_segments_from(log, offset))
        log.active = log.segments[-1]
        size_before = log.active.size
        log.end_offset = log.active.truncate_to(offset, now_ms)
        log.log_start_offset = min(log.log_start_offset, log.end_offset)
        truncate_derived_state(log, now_ms)
        if log.active.size < size_before:
            # The truncation is not durable yet. Later appends go to a new segment. Should a crash restore the truncated
            # bytes, the name of that segment tells recovery from which offset on they are invalid. On a full disk the
            # next append makes it.
            log.cut_segments.append(log.active)
            if not try_roll(log, now_ms) and log.failure is not None:
                raise log.failure
    except OSError as error:
        log.fail_log(error)
        raise
    return True


def prepare_producers(log: LogState, offset: int, now_ms: int) -> Iterator[None]:
    """Restore in steps the producer state at the end that the log will have after `truncate_to(offset)`. Nothing may be
    appended between the steps. A disk error or a damaged batch ends this without a result: `truncate_to` meets it, too.
    """
    end_offset = log.end_after_truncation(offset)
    kept = [segment for segment in log.segments if segment.base_offset < end_offset]
    if not kept or end_offset >= log.end_offset:
        return
    with suppress(OSError, MalformedMessage):
        place = kept[-1].find_batch(end_offset)
        snapshot = log.snapshots.load_latest(log.log_start_offset, end_offset)
        producers = ProducerStates(log.producers.expiration_ms)
        yield from load_in_steps(
            kept,
            snapshot,
            producers,
            log.log_start_offset,
            end_offset,
            now_ms,
            end_position=place.position if place else None,
        )
        log.prepared_producers = producers


def remove_local_part(log: LogState, offset: int, now_ms: int) -> None:
    """Remove all batches of a tiered log whose batches before `offset` are in remote storage. The log then ends at
    `offset`, and keeps its log start offset and leader epochs. Raises OSError and `MalformedMessage`.

    DIVERGES: in Apache Kafka such a log begins at `offset`, without leader epochs. If the replica leads later, it
    deletes the remote segments before that offset.
    """
    remove_files(log.fs, log.segments)
    log.segments[:] = [Segment.create(log.fs, log.directory, offset, log.config, now_ms)]
    log.active = log.segments[0]
    log.end_offset = offset
    truncate_derived_state(log, now_ms)


def drop_segments_from(log: LogState, offset: int) -> list[Segment]:
    """Remove the segments that begin at or past `offset` from `log.segments`, but never the first one. Returns the
    removed segments."""
    kept_count = max(1, sum(segment.base_offset < offset for segment in log.segments))
    dropped = log.segments[kept_count:]
    del log.segments[kept_count:]
    return dropped


def truncate_fully_and_start_at(log: LogState, offset: int, now_ms: int) -> None:
    """Remove all batches. The log then begins and ends at `offset`. Raises OSError, after which the log has failed."""
    try:
        # The snapshots first: after a crash a start would take one past the end that is left for a loss of batches.
        for snapshot_offset in list(log.snapshots.offsets):
            log.snapshots.remove(snapshot_offset)
        remove_files(log.fs, log.segments)
        # Durably, and before there is a log: otherwise the next start would take the last old epoch for the one in
        # which this log begins.
        log.epochs.remove_file()
        log.segments[:] = [Segment.create(log.fs, log.directory, offset, log.config, now_ms)]
        log.active = log.segments[0]
        log.end_offset = log.log_start_offset = offset
        truncate_derived_state(log, now_ms)
    except OSError as error:
        log.fail_log(error)
        raise


def truncate_derived_state(log: LogState, now_ms: int) -> None:
    """Truncate indexes, epochs and producer state to the new end of the log. Raises OSError and `MalformedMessage`."""
    prepared = log.prepared_producers
    log.forget_state_past_end()
    log.epochs.truncate_from_end(log.end_offset)
    log.snapshots.remove_after(log.end_offset)
    if prepared is not None and prepared.map_end_offset == log.end_offset:
        log.producers.take_over(prepared)
    else:
        load_producers(log.segments, log.snapshots, log.producers, log.log_start_offset, log.end_offset, now_ms)


class RemoteStart(NamedTuple):
    """The offset at which a log begins whose earlier part is only in remote storage, and the state at the end of that
    part."""

    offset: int
    """The end (exclusive) of the remote segment from which the state was read."""
    log_start_offset: int
    """The leader's log start offset; at most `offset`."""
    epochs: tuple[EpochStart, ...]
    """All leader epochs up to `offset`."""
    producers: bytes
    """The content of the producer snapshot file at `offset`."""


def start_after_remote(log: LogState, start: RemoteStart, now_ms: int) -> None:
    """Remove all batches. The log then continues at `start.offset`, with the state at the end of the remote part.

    Before the call, the caller must have made a recovery point durable that is at or below the base offset of the first
    local segment. Raises OSError. After a transient error the log is empty, as after a crash, and may be started again;
    after any other it has failed.
    """
    try:
        remove_files(log.fs, log.segments)
        for snapshot_offset in list(log.snapshots.offsets):
            log.snapshots.remove(snapshot_offset)
        log.fs.sync_directory(log.directory)
        log.snapshots.write_fetched_snapshot(start.offset, start.producers)
        log.epochs.replace([each for each in start.epochs if each.start_offset < start.offset])
        log.epochs.truncate_from_start(start.log_start_offset)
        log.epochs.write()
        log.segments[:] = [Segment.create(log.fs, log.directory, start.offset, log.config, now_ms)]
        log.active = log.segments[0]
        log.end_offset = start.offset
        log.log_start_offset = start.log_start_offset
        log.tiered_end_offset = 0  # Snapshots of other leader epochs; they are found again through their epochs.
        truncate_derived_state(log, now_ms)
        log.fs.sync_directory(log.directory)
        log.recovery_point = log.synced_end_offset = start.offset
        log.note_change()
    except OSError as error:
        if error.errno in TRANSIENT_ERRNOS:
            truncate_fully_and_start_at(log, log.log_start_offset, now_ms)
        log.fail_unless_transient(error)
        raise
