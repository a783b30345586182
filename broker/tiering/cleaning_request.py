"""Builds the request that the cleaner's process gets for one pass over remote segments, from a cleaning plan."""

from __future__ import annotations

from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.compaction.remote_cleaning import GroupRequest, RemoteCleaningRequest, SourceRange
from moldau.storage.compaction.request import CleanerLimits, CleaningRequest
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.storage.log.log_state import LogState
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.cleaning_plan import CleaningPlan, PlannedPart
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment


def remote_rules(
    log: LogState,
    plan: CleaningPlan,
    directory: str,
    limits: CleanerLimits,
    tombstones_end_offset: int,
    salt: bytes,
    now_ms: int,
) -> CleaningRequest:
    """The cleaning rules for remote segments. `directory`: where the results are written."""
    config = log.config
    return CleaningRequest(
        directory=directory,
        truncation_count=log.truncation_count,
        segments=(),
        first_dirty_offset=plan.map_start_offset,
        # No batch is kept for its offset alone, because the metadata has the end offset of a segment.
        first_uncleanable_offset=-1,
        aborted_behind=(),
        last_records={},  # No batch is kept for its producer, because a follower begins with the producer snapshot.
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        expanded_bytes_max=config.expanded_bytes_max,
        expanded_record_bytes_max=config.expanded_record_bytes_max,
        compression_type=config.compression_type,
        compression_level=config.compression_level,
        limits=limits,
        tombstones_end_offset=tombstones_end_offset,
        salt=salt,
        now_ms=now_ms,
    )


def remote_request(
    log: LogState, plan: CleaningPlan, rules: CleaningRequest, aborted: tuple[AbortedTransaction, ...]
) -> tuple[RemoteCleaningRequest, dict[str, RemoteSegment]]:
    """The request, and the remote segment for each path that the cleaner's process may ask for."""
    downloads: dict[str, RemoteSegment] = {}

    def ranges(parts: tuple[PlannedPart, ...]) -> tuple[SourceRange, ...]:
        return tuple(_source_range(each, log.directory, rules.directory, downloads) for each in parts)

    request = RemoteCleaningRequest(
        rules=rules,
        map_sources=ranges(plan.map_parts),
        map_end_offset=plan.map_end_offset,
        groups=tuple(
            GroupRequest(
                each.start_offset, each.last_offset + 1, ranges(each.parts), each.cleaned_end_offset, each.is_copied
            )
            for each in plan.groups
        ),
        aborted=aborted,
    )
    return request, downloads


def _source_range(
    part: PlannedPart, log_directory: str, directory: str, downloads: dict[str, RemoteSegment]
) -> SourceRange:
    source = part.source
    if isinstance(source, RemoteSegment):
        path = f"{directory}/{offset_name(source.start_offset, '')}_{uuid_text(source.segment_id)}{LOG_SUFFIX}"
        downloads[path] = source
        return SourceRange(path, source.size, part.first_offset, part.end_offset, is_downloaded=True)
    path = f"{log_directory}/{offset_name(source.base_offset, LOG_SUFFIX)}"
    return SourceRange(path, source.size, part.first_offset, part.end_offset, is_downloaded=False)
