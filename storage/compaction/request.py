"""The request for one round of cleaning, as values that the broker pickles for the worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.protocol.compression import Codec
from moldau.protocol.record_stream import RECORD_SIZE_UNLIMITED
from moldau.storage.compaction.cleanable import CleanablePart
from moldau.storage.compaction.events import LogChanged
from moldau.storage.log.aborted_transactions import aborted_transactions
from moldau.storage.log.log_state import LogState
from moldau.storage.log.segment_swap import SegmentSize
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.producers.producer_state import NO_OFFSET, ProducerStates
from moldau.storage.segment.transaction_index import AbortedTransaction


class LastRecord(NamedTuple):
    """The last record of an active producer: its batch keeps the producer's sequence and epoch in the log."""

    last_data_offset: int | None
    """None where the last batch of the producer is a marker."""
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
    """No tombstone and no marker at or past it gets a delete horizon or is removed: an older value of the key, or data
    of the transaction, may be in remote storage."""
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

    Raises OSError and `LogChanged`. The log has changed where it was truncated since the part was determined: it may
    end before the part, or have other, uncommitted records there. It has also changed where retention removed all
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
