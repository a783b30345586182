"""Starting a log after its remote part: the local files begin where the leader's local log begins, or a little before.

    1  the segments and snapshots here are unlinked, durably         a crash: an empty log at the log start offset
    2  the producer snapshot and the leader epochs are written       the same: no part of them is within that log
    3  the first segment is created, durably                         a crash: the log as it is meant to be

The recovery point is below the first segment until the next checkpoint. A start counts what lies before the first
segment of a tiered log as durable (`loading.py`), so that it uses the snapshot and the epochs of step 2.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.log.log_state import LogState
from moldau.storage.log.truncation import remove_files, settle
from moldau.storage.segment.segment import Segment


class RemoteStart(NamedTuple):
    """The start of a log whose earlier part is only in remote storage, and the state at the end of that part."""

    offset: int
    """The end (exclusive) of the remote segment from which the state comes."""
    log_start_offset: int
    """The leader's log start offset; at most `offset`."""
    epochs: tuple[EpochStart, ...]
    """All leader epochs up to `offset`."""
    producers: bytes
    """The producer snapshot at `offset`, with the content of its file."""


def start_after_remote(log: LogState, start: RemoteStart, now_ms: int) -> None:
    """Remove all batches; the log then goes on at an offset, with the state of the remote part. The owner made a
    recovery point at or below the first offset of the files durable *before* this. Raises OSError: the log has failed.
    """
    try:
        remove_files(log, log.segments)
        for snapshot_offset in list(log.snapshots.offsets):
            log.snapshots.remove(snapshot_offset)
        log.fs.sync_directory(log.directory)
        log.snapshots.adopt(start.offset, start.producers)
        log.epochs.replace([each for each in start.epochs if each.start_offset < start.offset])
        log.epochs.truncate_from_start(start.log_start_offset)
        log.epochs.write()
        log.segments[:] = [Segment.create(log.fs, log.directory, start.offset, log.config, now_ms)]
        log.active = log.segments[0]
        log.end_offset = start.offset
        log.log_start_offset = start.log_start_offset
        log.tiered_end_offset = 0  # Snapshots of other leader epochs; they are found again through their epochs.
        settle(log, now_ms)
        log.fs.sync_directory(log.directory)
        log.recovery_point = log.synced_end_offset = start.offset
    except OSError as error:
        log.fail(error)
        raise
