"""Remote retention: the remote segments that the leader deletes, and the resulting log start offset.

`retention.ms` and `retention.bytes` count both tiers: remote segments, and those that are only local. Where
`cleanup.policy` has no "delete", remote segments are deleted only before the log start offset. The log start offset
moves first, so that no reader is sent to a segment that is being deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.storage.log.log import Log
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment


class Expired(NamedTuple):
    """The segments to delete, with the new log start offset."""

    segments: Sequence[RemoteSegment]
    log_start_offset: int
    """The log start offset after the deletion; never below its current value."""


def expired(log: Log, remote_log: RemoteLog, high_watermark: int, now_ms: int, superseded_retention_ms: int) -> Expired:
    """The remote segments to delete, oldest first: those before the log start offset, those that retention gives up
    (where `cleanup.policy` has "delete"), those whose leader epochs the log does not have any more, and those that
    were superseded long enough ago that no fetch reads them (decision 14). Raises OSError."""
    entries = log.epochs.entries
    strays = remote_log.strays(log.end_offset, entries, is_compacted=log.config.is_compacted)
    stray_ids = {each.segment_id for each in strays}
    excess_size = _size_of_both_tiers(log, remote_log, strays, high_watermark) - log.config.retention_bytes
    is_limited = log.config.is_deleted_by_retention
    has_size = is_limited and log.config.retention_bytes >= 0
    has_time = is_limited and log.config.retention_ms >= 0
    gone: list[RemoteSegment] = []
    start_offset = log.log_start_offset
    first_left: RemoteSegment | None = None
    for segment in remote_log.oldest_first():
        if segment.segment_id in stray_ids:
            continue
        is_hidden = segment.last_offset < log.log_start_offset
        is_due = (has_size and excess_size >= segment.size) or (
            has_time and now_ms - segment.max_timestamp_ms > log.config.retention_ms
        )
        if not is_hidden and not is_due:
            first_left = segment
            break
        excess_size -= segment.size
        start_offset = max(start_offset, segment.last_offset + 1)
        gone.append(segment)
    if gone or first_left is not None:
        # This also applies where a crash lost the log start offset of an earlier round: no record is before the first
        # segment, or before its first known leader epoch.
        first_read = first_left.epochs[0].start_offset if first_left else start_offset
        start_offset = max(start_offset, min(log.local_start_offset, first_read))
    first_epoch = entries[0].epoch if entries else -1
    gone += [each for each in strays if each.epochs[-1].epoch < first_epoch or each.last_offset < log.log_start_offset]
    gone += [each for each, since_ms in remote_log.superseded() if now_ms - since_ms > superseded_retention_ms]
    return Expired(gone, start_offset)


def _size_of_both_tiers(log: Log, remote_log: RemoteLog, strays: Sequence[RemoteSegment], high_watermark: int) -> int:
    """Without local segments past the high watermark: the next leader may not have them, and what a leader that is cut
    off deletes for them is gone from remote storage for all."""
    only_local = (
        segment.size for segment in log.segments if log.tiered_end_offset <= segment.base_offset < high_watermark
    )
    return sum(only_local) + remote_log.size() - sum(segment.size for segment in strays)
