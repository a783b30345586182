"""Decides what the cleaner may clean of a log, and which log it cleans next. Also the values that the broker exchanges
with the worker process in one round of cleaning: the request, and the events.

    log start         first dirty offset      first uncleanable offset       log end
        |---- clean ----------|---- cleanable ----------|---- not yet ---------|

The clean part has at most one record of each key. The cleanable part ends where a segment begins: at the active
segment, at the segment with the last stable offset, or at the first dirty segment with a record younger than
min.compaction.lag.ms, whichever is first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import TypeAlias, TypeVar

from moldau.protocol.compression import Codec
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.record_stream import RECORD_SIZE_UNLIMITED
from moldau.storage.log.log_state import LogState
from moldau.storage.log.reading import aborted_transactions
from moldau.storage.log.segment_swap import SegmentCleaned, SegmentSize
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.producers.producer_state import NO_OFFSET, ProducerStates
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction

_base_offset = attrgetter("base_offset")
LogName = TypeVar("LogName")


class CleanablePart(NamedTuple):
    """The clean and the cleanable part of a log, as they are now."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that may not be cleaned. It is below `first_dirty_offset` if that offset is
    within this segment."""
    clean_bytes: int
    """Bytes of the segments that begin before the first dirty offset."""
    cleanable_bytes: int
    """Bytes of the segments from the one with the first dirty offset to the last cleanable one."""
    compaction_overdue_ms: int
    """For how long (ms) the oldest dirty segment has been older than max.compaction.lag.ms; 0 if it is not older."""
    is_checkpoint_reset: bool
    """Whether the checkpointed offset was outside of the log. The caller then checkpoints
    `first_dirty_offset` instead."""
    truncation_count: int = 0
    """The truncation count of the log when the part was determined. After a further truncation the offsets of the part
    are meaningless."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """The cleanable bytes divided by the clean and the cleanable bytes; 0 if there are neither."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def must_be_cleaned(self, min_dirty_ratio: float) -> bool:
        """Whether the log must be cleaned: its dirty ratio exceeds `min_dirty_ratio`, or a dirty segment is older than
        max.compaction.lag.ms.
        """
        return (self.compaction_overdue_ms > 0 and self.cleanable_bytes > 0) or self.dirty_ratio > min_dirty_ratio


def cleanable_part(
    log: LogState, checkpointed_offset: int | None, last_stable_offset: int, now_ms: int
) -> CleanablePart:
    """Find the cleanable part of a log that was cleaned up to `checkpointed_offset` (exclusive; None if never).

    With a compaction lag it reads the timestamps of dirty segments. Raises OSError and `MalformedMessage`.
    """
    first_dirty = log.log_start_offset if checkpointed_offset is None else checkpointed_offset
    is_reset = not log.log_start_offset <= first_dirty <= log.end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    dirty = dirty_segments(log, first_dirty)
    limit = min(last_stable_offset, log.active.base_offset, first_young_offset(log, dirty, now_ms))
    limit = max(limit, first_dirty)
    if limit <= log.active.base_offset:
        first_uncleanable = log.segments[bisect_right(log.segments, limit, key=_base_offset) - 1].base_offset
    else:
        first_uncleanable = log.active.base_offset
    clean_count = bisect_left(log.segments, first_dirty, key=_base_offset)
    cleanable = segments_between(log.segments, min(first_dirty, first_uncleanable), first_uncleanable)
    return CleanablePart(
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in log.segments[:clean_count]),
        sum(segment.size for segment in cleanable),
        compaction_overdue_ms(log, dirty, now_ms),
        is_reset,
        log.truncation_count,
    )


def segments_between(segments: list[Segment], start_offset: int, end_offset: int) -> list[Segment]:
    """The segments with an offset in [start_offset, end_offset): from the one that contains `start_offset` up to the
    last one that begins before `end_offset`."""
    if start_offset >= end_offset:
        return []
    first = max(0, bisect_right(segments, start_offset, key=_base_offset) - 1)
    return segments[first : bisect_left(segments, end_offset, key=_base_offset)]


def dirty_segments(log: LogState, first_dirty_offset: int) -> list[Segment]:
    """The segments before the active one that have an offset at or past `first_dirty_offset`."""
    return segments_between(log.segments, first_dirty_offset, log.active.base_offset)


def first_young_offset(log: LogState, dirty: list[Segment], now_ms: int) -> int:
    """The base offset of the first dirty segment with a record younger than min.compaction.lag.ms; `INT64_MAX` if
    there is none."""
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - lag_ms:
                return segment.base_offset
    return INT64_MAX


def compaction_overdue_ms(log: LogState, dirty: list[Segment], now_ms: int) -> int:
    """The time (ms) by which the oldest dirty segment exceeds max.compaction.lag.ms, measured from the timestamp of its
    first batch; 0 if it does not exceed the limit.
    """
    due_ms = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if due_ms <= 0:
        return 0  # Without a limit no timestamp is read.
    timestamps = [timestamp for each in dirty if (timestamp := each.first_timestamp()) is not None and timestamp > 0]
    return max(0, due_ms - min(timestamps, default=due_ms))


def dirtiest_log(parts: Iterable[tuple[LogName, CleanablePart, float]]) -> LogName | None:
    """The name of the log to clean next: of the logs that have to be cleaned, the one with the largest dirty ratio.

    `parts` has the name, the cleanable part and the min.cleanable.dirty.ratio of each log. If ratios are equal, the
    first log is chosen. Returns None if no log has to be cleaned.
    """
    wanted = [(name, part) for name, part, min_ratio in parts if part.total_bytes and part.must_be_cleaned(min_ratio)]
    return max(wanted, key=lambda each: each[1].dirty_ratio)[0] if wanted else None


class LastProducerBatch(NamedTuple):
    """The last batch of an active producer. The cleaner keeps it, because it has the producer's sequence and epoch."""

    last_data_offset: int | None
    """The last data offset of the producer; None if its last batch is a marker."""
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """The settings of the broker for one cleaner."""

    dedupe_buffer_size: int = 128 << 20
    """Size of the offset map in bytes."""
    io_buffer_size: int = 256 << 10
    """Bytes that are read at once; a larger batch is read whole."""
    load_factor: float = 0.9
    """The largest share of the offset map that may be in use, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """The request for one round of cleaning of one log."""

    directory: str
    truncation_count: int
    """The truncation count of the log at the time of the request. The swap refuses the cleaned segments if the count
    has changed."""
    segments: tuple[SegmentSize, ...]
    """The segments from the start of the log to the last one that may be cleaned."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted_with_later_marker: tuple[AbortedTransaction, ...]
    """The aborted transactions with data in `segments` and the marker in a later segment."""
    last_records: Mapping[int, LastProducerBatch] = field(repr=False)
    """The last batches of the producers that have not expired, by producer id."""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    expanded_bytes_max: int
    """The most bytes of a batch's decompressed records."""
    expanded_record_bytes_max: int = RECORD_SIZE_UNLIMITED
    """The most bytes of one record of a compressed batch."""
    compression_type: Codec | None
    compression_level: int | None
    """The level at which batches of `compression_type` are compressed again. Batches of another codec get the default
    of their codec."""
    limits: CleanerLimits
    tombstones_end_offset: int = INT64_MAX
    """The offset from which on tombstones and markers are kept, without a delete horizon. Older values, or data of the
    transaction, may be in remote storage.
    """
    open_before: frozenset[int] = frozenset()
    """The producer ids with a transaction that was open before the first segment. Its earlier data is only in remote
    storage.
    """
    salt: bytes = field(repr=False)
    """`SALT_SIZE` secret random bytes for the offset map."""
    now_ms: int


def cleaning_request(
    log: LogState,
    part: CleanablePart,
    limits: CleanerLimits,
    salt: bytes,
    now_ms: int,
    tombstones_end_offset: int = INT64_MAX,
) -> CleaningRequest:
    """Make the request to clean `part`, which `cleanable_part` determined for this log.

    Raises OSError; `LogChanged` if the log was truncated since then, or if retention removed all segments of the part.
    """
    is_gone = part.first_dirty_offset < part.first_uncleanable_offset <= log.segments[0].base_offset
    if part.truncation_count != log.truncation_count or is_gone:
        raise LogChanged(log.directory)
    config: LogConfig = log.config
    end_offset = part.first_uncleanable_offset
    return CleaningRequest(
        directory=log.directory,
        truncation_count=log.truncation_count,
        segments=tuple(
            SegmentSize(each.base_offset, each.size) for each in log.segments if each.base_offset < end_offset
        ),
        first_dirty_offset=part.first_dirty_offset,
        first_uncleanable_offset=end_offset,
        aborted_with_later_marker=tuple(aborted_transactions(log, end_offset, end_offset)),
        last_records=last_records(log.producers),
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
        open_before=producers_open_at_start(log),
        salt=salt,
        now_ms=now_ms,
    )


def producers_open_at_start(log: LogState) -> frozenset[int]:
    """The ids of the producers with an open transaction at the start of the local log, by the producer snapshot at that
    offset. Empty if the log is not tiered or has no such snapshot.

    A follower of a tiered log may begin with this snapshot. Raises OSError.
    """
    start_offset = log.segments[0].base_offset
    if not log.config.is_tiered or start_offset not in log.snapshots.offsets:
        return frozenset()
    try:
        entries = decode_snapshot(log.fs.read(log.snapshots.path(start_offset)))
    except (CorruptSnapshot, FileNotFoundError):
        return frozenset()  # A start of the broker removes a damaged snapshot; no follower begins with it.
    return frozenset(each.producer_id for each in entries if each.open_transaction_offset != NO_OFFSET)


def last_records(producers: ProducerStates) -> dict[int, LastProducerBatch]:
    """The last batch of each producer whose state the log keeps, by producer id."""
    return {
        producer_id: LastProducerBatch(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
        for producer_id, entry in producers.entries.items()
    }


class BytesProcessed(NamedTuple):
    """Event: the bytes read and written since the last event. The driver throttles the cleaning by them."""

    bytes_read: int
    bytes_written: int


@dataclass(slots=True)
class CleaningStatistics:
    """The counts of one round of cleaning, under the names of Kafka's cleaner."""

    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key, which compaction removes."""
    buffer_utilization: float = 0.0
    """The share of the offset map in use, 0 to 1."""


class CleaningDone(NamedTuple):
    """The last event of a round of cleaning. Everything before `next_dirty_offset` is clean once the cleaned segments
    are swapped in."""

    next_dirty_offset: int
    statistics: CleaningStatistics


CleaningEvent: TypeAlias = BytesProcessed | SegmentCleaned | CleaningDone


class LogChanged(Exception):
    """A segment differs from the request, because the log was truncated or deleted, or retention deleted the segment.
    The log is intact; the driver discards the cleaned segment.
    """
