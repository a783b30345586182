"""Cleaning one batch: which of its records are kept, and whether an empty batch is kept.

| batch                                            | records that are kept    | if no record is kept, the batch is    |
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

If the log is also in remote storage, older values of a key may be there. At or past `tombstones_end_offset` a batch
gets no horizon, and no tombstone and no marker is removed (decision 14).

A batch whose records are all kept is copied unchanged, unless it gets a horizon. Any other batch is written anew with
the kept records, and keeps its base offset, last offset, sequences, epochs and codec. Only a new horizon changes the
base timestamp and the bytes of the records.

`CleanedTransactions` gets every batch in the order of the log. It knows the transactions that are open at the cleaner's
position, which data is aborted, and which markers may be removed. A marker may be removed once an earlier round has
removed all batches of its transaction and the delete horizon of the marker has passed. Without the marker a reader
would take an aborted record as committed, or would wait for the end of the transaction.

If a log is in two tiers, the cleaner reads one part at a time. A marker at or past `keeps_from` stays, with its entry
in the transaction index, because batches of its transaction may be in a part that is less clean. A marker also stays if
its transaction was open at the first local offset, because a follower that begins there has the transaction open.

DIVERGES: Apache Kafka sets the horizon also of a batch that the offset map does not cover, because the map was full. An
older value of the key then stays in this round. A later round may remove the value and the tombstone at once, although
a consumer has just read the value.

DIVERGES: Apache Kafka makes the timestamp of the first kept record the new base timestamp. The timestamps of the
records are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.protocol.compression import compress
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.primitives import BytesLike, varint
from moldau.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    read_raw_varint,
    read_raw_varlong,
)
from moldau.protocol.record_builder import assemble
from moldau.protocol.record_reader import records_of
from moldau.storage.compaction.offset_map import LATEST, NOT_NOTED, SUPERSEDED, OffsetMap
from moldau.storage.compaction.request import CleaningRequest, CleaningStatistics
from moldau.storage.compaction.segments import CleanedBatch, record_runs_of
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from mypy_extensions import i64

TIMESTAMP_DELTA_MIN: Final = -(1 << 63)
"""The smallest timestamp delta, with which the search for the largest one starts."""


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

    def clean_batch(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        """Clean one batch.

        Returns the batch to write in place of it; None if the batch is removed. Raises `MalformedMessage`.
        """
        if header.is_control:
            return self._cleaned_control(header, batch)
        if self._transactions.observe_data_batch(header):
            return self._empty(header)
        return self._cleaned_data(header, batch)

    def _cleaned_control(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        is_discardable = self._transactions.observe_control_batch(header, batch)
        horizon_ms = header.delete_horizon_ms
        if is_discardable and horizon_ms is not None and horizon_ms <= self._request.now_ms:
            return self._empty(header)
        self._statistics.messages_read += header.records_count
        if not header.records_count:
            return self._empty(header)
        self._statistics.messages_written += header.records_count
        if is_discardable and horizon_ms is None:
            body = b"".join([run for run, _ in record_runs_of(self._request, header, batch)])
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
        """Return the batch with only the records that are kept. Return None if the batch is removed."""
        request, statistics = self._request, self._statistics
        horizon_ms = header.delete_horizon_ms
        is_settled = header.last_offset < request.tombstones_end_offset
        keeps_tombstones = horizon_ms is None or request.now_ms < horizon_ms or not is_settled
        kept_count, max_timestamp_delta, has_tombstones = 0, TIMESTAMP_DELTA_MIN, False
        parts: list[BytesLike] = []
        for run, count in record_runs_of(request, header, batch):
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
        records = with_shifted_timestamps(body, header.base_timestamp - horizon_ms)
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
        return rewritten_batch(header, (records,), count, attributes, base_timestamp, max_timestamp, level)

    def _empty(self, header: BatchHeader) -> CleanedBatch | None:
        """Return the header of a batch without records; None if it is not needed. It is needed if it has the last
        sequence of an active producer, or ends at the first uncleanable offset.
        """
        if header.next_offset != self._request.first_uncleanable_offset and not self._is_last_of_producer(header):
            return None
        return header_only_batch(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._request.last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.last_data_offset


def rewritten_batch(
    header: BatchHeader,
    records: Sequence[BytesLike],
    count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    compression_level: int | None,
) -> CleanedBatch:
    """Write a batch anew: with the offsets, the producer and the codec of `header`, and with `count` of its records.
    `records` has their encoded bytes before compression, in parts.
    """
    if header.is_compressed:
        body = records[0] if len(records) == 1 else b"".join(records)
        records = (compress(header.codec, body, compression_level),)
    data = assemble(
        records,
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


def header_only_batch(header: BatchHeader) -> CleanedBatch:
    """A batch without its records: the header alone keeps its offsets, producer, sequences and maximum timestamp."""
    data = assemble(
        (b"",),
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


class CleanedTransactions:
    """Tells which data is aborted, and which markers may be removed, from the transactions that are open at the
    cleaner's position."""

    __slots__ = ("_aborted", "_coming", "_committed", "_keeps_from", "_met", "on_abort_marker_kept")

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        *,
        keeps_from: int = INT64_MAX,
        open_before: frozenset[int] = frozenset(),
    ) -> None:
        """`aborted`: the aborted transactions that have a data batch or their marker among the batches that the caller
        will report to `observe_data_batch` and `observe_control_batch`. `keeps_from`: markers at or after this offset
        are kept. `open_before`: the ids of the producers with a transaction that is open before the first reported
        batch."""
        self._coming = sorted(set(aborted), key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """The aborted transactions that have begun, by producer id."""
        self._keeps_from = keeps_from
        self._met: set[int] = set(open_before)
        """The ids of the producers with a reported data batch in a transaction that is aborted and has not ended; at
        first `open_before`.
        """
        self._committed: set[int] = set(open_before)
        """The ids of the producers with a reported data batch in a transaction that is not aborted and has not ended;
        at first `open_before`.
        """
        self.on_abort_marker_kept: Callable[[AbortedTransaction], None] | None = None
        """Called with an aborted transaction whose marker is kept, if the transaction index of the cleaned segment
        needs an entry for it.
        """

    def observe_data_batch(self, header: BatchHeader) -> bool:
        """Observe the next data batch of the log. Returns whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None and header.base_offset <= aborted.last_offset:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def observe_control_batch(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Observe the next control batch of the log. Returns whether the cleaner may remove its marker. Raises
        `MalformedMessage`.
        """
        self._begin_up_to(header.last_offset)
        record = next(iter(records_of(batch, 0, header)), None)
        if record is None:
            return True  # An earlier round removed the marker's record.
        kind = control_record_type(record.key)
        producer_id = header.producer_id
        is_met, is_committed = producer_id in self._met, producer_id in self._committed
        is_kept = header.last_offset >= self._keeps_from
        if kind is ControlRecordType.ABORT:
            self._end(producer_id)
            aborted = self._aborted.pop(producer_id, None)
            if aborted is not None and (is_met or is_kept) and self.on_abort_marker_kept is not None:
                self.on_abort_marker_kept(aborted)
            return not (is_kept or (is_met and (aborted is not None or is_committed)))
        if kind is ControlRecordType.COMMIT:
            self._end(producer_id)
            return not (is_kept or is_committed)
        return False

    def _end(self, producer_id: int) -> None:
        self._met.discard(producer_id)
        self._committed.discard(producer_id)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            known = self._aborted.get(aborted.producer_id)
            if known is None or known.last_offset < aborted.first_offset:
                self._aborted[aborted.producer_id] = aborted


def with_shifted_timestamps(records: bytes, shift: int) -> bytes:
    """Return encoded records with `shift` (ms) added to every timestamp delta. The caller has checked the framing of
    the records."""
    out = bytearray()
    at: i64 = 0
    end: i64 = len(records)
    while at < end:
        size: i64
        raw: i64
        size, at = read_raw_varint(records, at)
        record_end: i64 = at + (size >> 1)
        attributes = records[at : at + 1]
        raw, at = read_raw_varlong(records, at + 1)
        delta: i64 = ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1)
        encoded = varint(delta + shift)
        out += varint(1 + len(encoded) + record_end - at)
        out += attributes
        out += encoded
        out += records[at:record_end]
        at = record_end
    return bytes(out)
