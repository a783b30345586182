"""The status of the remote log of one partition."""

from __future__ import annotations

from typing import NamedTuple

from moldau.storage.tiered.metadata.lineage import read_lineage
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition


class PartitionOffsets(NamedTuple):
    """The offset ranges of a partition; each is -1 where it is not known."""

    log_start_offset: int
    local_start_offset: int
    tiered_offset: int
    """The last offset (inclusive) that is copied to remote storage."""
    end_offset: int


class PartitionStatus(NamedTuple):
    """One line of `tier status`. The names of the fields are those of its JSON."""

    topic: str
    partition: int
    segments: int
    """The number of segments that are read."""
    bytes: int
    remote_start: int
    """The first offset in remote storage; -1 where there is none."""
    remote_end: int
    """The end (exclusive) of the offsets in remote storage."""
    local_start: int
    log_end: int
    copy_lag: int
    """The number of offsets that are not copied yet, including those of the active segment."""
    cleaned_end: int
    """For a compacted topic: the offset (exclusive) up to which every remote segment is cleaned; -1 otherwise."""
    copying: int
    """The number of copies that have begun and are not finished."""
    superseded: int
    """The number of segments that another segment has replaced; they are deleted after a grace time."""
    deleting: int
    """The number of segments whose deletion has begun and is not finished."""
    exists: bool
    """Whether the topic still exists."""


def status_of(key: RemotePartition, remote_log: RemoteLog, offsets: PartitionOffsets | None) -> PartitionStatus:
    """The status of a remote log. `offsets` is None where the topic does not exist any more."""
    read = remote_log.read_segments()
    known = offsets or PartitionOffsets(-1, -1, -1, -1)
    is_compacted = any(read_lineage(each.custom_metadata) for each in read)
    return PartitionStatus(
        topic=key.topic,
        partition=key.partition,
        segments=len(read),
        bytes=sum(each.size for each in read),
        remote_start=min((each.start_offset for each in read), default=-1),
        remote_end=max((each.last_offset + 1 for each in read), default=-1),
        local_start=known.local_start_offset,
        log_end=known.end_offset,
        copy_lag=-1 if offsets is None else max(0, known.end_offset - max(known.tiered_offset + 1, 0)),
        cleaned_end=remote_log.cleaned_end_offset() if is_compacted else -1,
        copying=len(remote_log.unfinished()),
        superseded=len(remote_log.superseded()),
        deleting=len(remote_log.in_deletion()),
        exists=offsets is not None,
    )
