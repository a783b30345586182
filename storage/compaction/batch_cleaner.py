"""Cleaning one batch: which of its records are kept, and whether an empty batch is kept.

| batch                                            | records that are kept    | where no record is kept, the batch is |
|--------------------------------------------------|--------------------------|---------------------------------------|
| data                                             | the latest of each key,  | removed                               |
|                                                  | and all past the map     |                                       |
| data of an aborted transaction                   | none                     | removed                               |
| control, its transaction still has batches       | all                      |                                       |
| control, its transaction has no batches any more | all until the delete     | removed                               |
|                                                  | horizon, then none       |                                       |
| any: the last batch of an active producer        |                          | kept empty for its sequence and epoch |
| any: it ends at the first uncleanable offset     |                          | kept empty, so that no offset is lost |

A tombstone is removed once the delete horizon of its batch has passed. A batch gets its horizon, now plus
delete.retention.ms, when the cleaner first keeps a tombstone in it, or a marker whose transaction has no batches any
more. The horizon takes the place of the base timestamp, so the cleaner changes the timestamp delta of each record.

Where the log is also in remote storage, older values of a key may be there. At or past `tombstones_end_offset` a batch
gets no horizon, and no tombstone and no marker is removed (decision 14).

A batch of which every record is kept is copied as it is, unless it gets a horizon. Any other batch is written anew with
the kept records. Except for a new horizon their bytes stay, and so do the base offset, base timestamp, last offset,
sequences, epochs and codec of the batch.

DIVERGES: Apache Kafka sets the horizon also of a batch that the offset map does not cover, because the map was full. An
older value of the key then stays in this round. A later round may remove the value and the tombstone at once, although
a consumer has just read the value.

DIVERGES: Apache Kafka makes the timestamp of the first kept record the new base timestamp. The timestamps of the
records are the same.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.compression import compress
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
)
from moldau.protocol.record_builder import assemble
from moldau.storage.compaction.cleaned_segment import CleanedBatch
from moldau.storage.compaction.cleaned_transactions import CleanedTransactions
from moldau.storage.compaction.events import CleaningStatistics
from moldau.storage.compaction.offset_map import LATEST, NOT_NOTED, SUPERSEDED, OffsetMap
from moldau.storage.compaction.request import CleaningRequest
from moldau.storage.compaction.source_segment import runs_of_batch
from moldau.storage.compaction.timestamp_shift import shifted

SMALLEST: Final = -(1 << 63)
"""A timestamp delta that no other delta is smaller than."""


class BatchCleaner:
    """Cleans the batches of a log one after another, in their order."""

    __slots__ = ("_offsets", "_request", "_statistics", "_transactions")

    def __init__(
        self,
        request: CleaningRequest,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        statistics: CleaningStatistics,
    ) -> None:
        self._request = request
        self._offsets = offsets
        self._transactions = transactions
        self._statistics = statistics

    def cleaned(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        """Clean one batch.

        Returns the batch to write in its place; None where it is removed. Raises `MalformedMessage`.
        """
        if header.is_control:
            return self._cleaned_control(header, batch)
        if self._transactions.take_data(header):
            return self._empty(header)
        return self._cleaned_data(header, batch)

    def _cleaned_control(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        is_discardable = self._transactions.take_control(header, batch)
        horizon_ms = header.delete_horizon_ms
        if is_discardable and horizon_ms is not None and horizon_ms <= self._request.now_ms:
            return self._empty(header)
        self._statistics.messages_read += header.records_count
        if not header.records_count:
            return self._empty(header)
        self._statistics.messages_written += header.records_count
        if is_discardable and horizon_ms is None:
            body = b"".join([run for run, _ in runs_of_batch(self._request, header, batch)])
            return self._with_horizon(header, body, header.records_count, header.max_timestamp)
        return CleanedBatch(batch, header.last_offset, header.max_timestamp)

    def _cleaned_data(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        count, fate = header.records_count, NOT_NOTED
        if count == header.last_offset_delta + 1:
            fate = self._offsets.fate(header.base_offset, count)
        if fate == SUPERSEDED:
            self._statistics.messages_read += count
            return self._empty(header)
        if fate == LATEST:
            self._statistics.messages_read += count
            self._statistics.messages_written += count
            return CleanedBatch(batch, header.last_offset, header.max_timestamp)
        return self._searched(header, batch)

    def _searched(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        """The batch with only the records that are kept."""
        request, statistics = self._request, self._statistics
        horizon_ms = header.delete_horizon_ms
        is_settled = header.last_offset < request.tombstones_end_offset
        keeps_tombstones = horizon_ms is None or request.now_ms < horizon_ms or not is_settled
        kept_count, max_timestamp_delta, has_tombstones = 0, SMALLEST, False
        parts: list[BytesLike] = []
        for run, count in runs_of_batch(request, header, batch):
            part, part_count, part_max, part_has_tombstones, without_key_count = self._offsets.select_run(
                run, count, header.base_offset, keeps_tombstones
            )
            parts.append(part)
            kept_count += part_count
            max_timestamp_delta = max(max_timestamp_delta, part_max)
            has_tombstones = has_tombstones or part_has_tombstones
            statistics.invalid_messages_read += without_key_count
        statistics.messages_read += header.records_count
        statistics.messages_written += kept_count
        if not kept_count:
            return self._empty(header)
        is_in_map = header.last_offset <= self._offsets.latest_offset
        needs_horizon = has_tombstones and horizon_ms is None and is_in_map and is_settled
        is_whole = kept_count == header.records_count
        if is_whole and not needs_horizon:
            return CleanedBatch(batch, header.last_offset, header.max_timestamp)
        if is_whole or header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = header.max_timestamp
        else:
            max_timestamp = header.base_timestamp + max_timestamp_delta
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if needs_horizon:
            return self._with_horizon(header, bytes(body), kept_count, max_timestamp)
        return self._rewritten(header, body, kept_count, header.attributes, header.base_timestamp, max_timestamp)

    def _with_horizon(self, header: BatchHeader, body: bytes, count: int, max_timestamp: int) -> CleanedBatch:
        horizon_ms = self._request.now_ms + self._request.delete_retention_ms
        records = shifted(body, header.base_timestamp - horizon_ms)
        return self._rewritten(
            header, records, count, header.attributes | DELETE_HORIZON_BIT, horizon_ms, max_timestamp
        )

    def _rewritten(
        self,
        header: BatchHeader,
        records: BytesLike,
        count: int,
        attributes: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> CleanedBatch:
        codec = header.codec
        level = self._request.compression_level if codec is self._request.compression_type else None
        data = assemble(
            compress(codec, records, level),
            header.base_offset,
            header.partition_leader_epoch,
            attributes,
            header.last_offset_delta,
            base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
        return CleanedBatch(data, header.last_offset, max_timestamp)

    def _empty(self, header: BatchHeader) -> CleanedBatch | None:
        """The batch without records; None where its header is not needed either."""
        if header.next_offset != self._request.first_uncleanable_offset and not self._is_last_of_producer(header):
            return None
        data = assemble(
            b"",
            header.base_offset,
            header.partition_leader_epoch,
            header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            header.last_offset_delta,
            NO_TIMESTAMP,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            0,
        )
        assert len(data) == HEADER_SIZE
        return CleanedBatch(data, header.last_offset, header.max_timestamp)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._request.last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.last_data_offset
