"""What the cleaner may clean of a log, which log it cleans next, and one round of cleaning as values that the broker
exchanges with the worker process: the request, and the events.

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
Name = TypeVar("Name")


class CleanablePart(NamedTuple):
    """The clean part and the cleanable part of one log at one time."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that is not cleaned; never below `first_dirty_offset`, unless that lies
    within this segment."""
    clean_bytes: int
    """Bytes of the segments that begin before the first dirty offset."""
    cleanable_bytes: int
    """Bytes of the segments from the one with the first dirty offset to the last cleanable one."""
    overdue_ms: int
    """For how long the oldest dirty segment has been older than max.compaction.lag.ms; 0 if none is."""
    is_checkpoint_reset: bool
    """The checkpointed offset was outside of the log. The owner checkpoints `first_dirty_offset` instead."""
    truncation_count: int = 0
    """The truncation count of the log at that time: after a truncation these offsets are meaningless."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """The cleanable bytes divided by the clean and the cleanable bytes; 0 if there are neither."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_wanted(self, min_dirty_ratio: float) -> bool:
        """Whether the log is dirty enough to be cleaned, or has passed its max.compaction.lag.ms."""
        return (self.overdue_ms > 0 and self.cleanable_bytes > 0) or self.dirty_ratio > min_dirty_ratio


def cleanable_part(
    log: LogState, checkpointed_offset: int | None, last_stable_offset: int, now_ms: int
) -> CleanablePart:
    """The cleanable part of a log that was cleaned up to `checkpointed_offset` (exclusive; None: it never was).

    Reads the timestamps of dirty segments if a limit of the log's configuration asks for them. Raises OSError and
    `MalformedMessage`.
    """
    first_dirty = log.log_start_offset if checkpointed_offset is None else checkpointed_offset
    is_reset = not log.log_start_offset <= first_dirty <= log.end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    dirty = dirty_segments(log, first_dirty)
    limit = min(last_stable_offset, log.active.base_offset, young_offset(log, dirty, now_ms))
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
        overdue_ms(log, dirty, now_ms),
        is_reset,
        log.truncation_count,
    )


def segments_between(segments: list[Segment], start_offset: int, end_offset: int) -> list[Segment]:
    """The segments that begin before `end_offset`, from the one that holds `start_offset` on."""
    if start_offset >= end_offset:
        return []
    first = max(0, bisect_right(segments, start_offset, key=_base_offset) - 1)
    return segments[first : bisect_left(segments, end_offset, key=_base_offset)]


def dirty_segments(log: LogState, first_dirty_offset: int) -> list[Segment]:
    """The rolled segments with offsets that were not cleaned."""
    return segments_between(log.segments, first_dirty_offset, log.active.base_offset)


def young_offset(log: LogState, dirty: list[Segment], now_ms: int) -> int:
    """The base offset of the first dirty segment with a record younger than min.compaction.lag.ms; `INT64_MAX` if
    there is none."""
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - lag_ms:
                return segment.base_offset
    return INT64_MAX


def overdue_ms(log: LogState, dirty: list[Segment], now_ms: int) -> int:
    """By how much the oldest dirty segment exceeds max.compaction.lag.ms, by the timestamp of its first batch."""
    due_ms = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if due_ms <= 0:
        return 0  # Without a limit no timestamp is read.
    timestamps = [timestamp for each in dirty if (timestamp := each.first_timestamp()) is not None and timestamp > 0]
    return max(0, due_ms - min(timestamps, default=due_ms))


def dirtiest(parts: Iterable[tuple[Name, CleanablePart, float]]) -> Name | None:
    """The name of the log to clean next: of the logs that are wanted, the one with the largest dirty ratio.

    `parts` are (name, part, min.cleanable.dirty.ratio). None if no log is wanted; of equal ratios the first counts.
    """
    wanted = [(name, part) for name, part, min_ratio in parts if part.total_bytes and part.is_wanted(min_ratio)]
    return max(wanted, key=lambda each: each[1].dirty_ratio)[0] if wanted else None


class LastRecord(NamedTuple):
    """The last batch of an active producer. The cleaner keeps it, because it has the producer's sequence and epoch."""

    last_data_offset: int | None
    """None if the last batch of the producer is a marker."""
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
    """One round of cleaning of one log."""

    directory: str
    truncation_count: int
    """The truncation count of the log at the time of the request; a swap compares it."""
    segments: tuple[SegmentSize, ...]
    """The segments from the start of the log to the last one that may be cleaned."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted_behind: tuple[AbortedTransaction, ...]
    """The aborted transactions with data in these segments and the marker in a later segment."""
    last_records: Mapping[int, LastRecord] = field(repr=False)
    """The last records of the producers that have not expired, by producer id."""
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
    """The level at which batches of `compression_type` are compressed again; others get the codec's default."""
    limits: CleanerLimits
    tombstones_end_offset: int = INT64_MAX
    """At or past this offset no tombstone and no marker gets a delete horizon or is removed: an older value of the key,
    or data of the transaction, may be in remote storage.
    """
    open_before: frozenset[int] = frozenset()
    """The producers with a transaction that was open before the first segment: its data is only in remote storage."""
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
    """The request to clean a part of a log.

    Raises OSError and `LogChanged`. The log has changed if it was truncated since the part was determined: it may
    end before the part, or have other, uncommitted records there. It has also changed if retention removed all
    segments of the part.
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
        aborted_behind=tuple(aborted_transactions(log, end_offset, end_offset)),
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
        open_before=open_before(log),
        salt=salt,
        now_ms=now_ms,
    )


def open_before(log: LogState) -> frozenset[int]:
    """The producers with an open transaction at the start of the local log, according to the producer snapshot there.

    A follower of a tiered log may begin with this snapshot. Raises OSError.
    """
    start_offset = log.segments[0].base_offset
    if not log.config.is_tiered or start_offset not in log.snapshots.offsets:
        return frozenset()
    try:
        entries = decode_snapshot(log.fs.read(log.snapshots.path(start_offset)))
    except CorruptSnapshot:
        return frozenset()  # A start of the broker removes the snapshot; no follower begins with it.
    return frozenset(each.producer_id for each in entries if each.open_transaction_offset != NO_OFFSET)


def last_records(producers: ProducerStates) -> dict[int, LastRecord]:
    """The last record of each producer that the log remembers."""
    return {
        producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
        for producer_id, entry in producers.entries.items()
    }


class BytesMoved(NamedTuple):
    """Bytes that were read and written since the last event. The driver uses them to throttle the cleaning."""

    bytes_read: int
    bytes_written: int


@dataclass(slots=True)
class CleaningStatistics:
    """The counts of one round; the names are those of Kafka's cleaner."""

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key, which compaction removes."""
    buffer_utilization: float = 0.0
    """The share of the offset map in use, 0 to 1."""


class CleaningDone(NamedTuple):
    """The last event: everything before `next_dirty_offset` is clean once the cleaned segments are swapped."""

    next_dirty_offset: int
    statistics: CleaningStatistics


CleaningEvent: TypeAlias = BytesMoved | SegmentCleaned | CleaningDone


class LogChanged(Exception):
    """A segment is no longer as the request describes it: the log was truncated or deleted, or retention removed it.

    The log is not damaged. The driver discards the cleaned segment.
    """
