"""The records of one partition's log that a capture takes: those of a window of time, sampled and masked.

The window is a run of offsets: from the first record at or after its begin up to the first one at or after its end, as
ListOffsets finds them, whatever timestamps lie between. Records keep offsets, timestamps, producers and sequences.

| of a transaction                      | in the capture                                         |
|---------------------------------------|--------------------------------------------------------|
| it ends after the window              | its marker follows the last record, at its own offset  |
| it is open at the end of the log      | an abort marker follows the last record                |
| it has no record that was taken       | no marker                                              |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader, TimestampType
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.log_config import INT64_MAX
from moldau.tables.values.masks import Masks

SAMPLE_BITS: Final = 64
EXPANDED_SIZE_MAX: Final = 1 << 30
"""The largest decompressed size (bytes) of the records of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rule by which a capture chooses the records of a topic."""

    from_ms: int = -1
    """The window of time begins with the first record at or after this time (ms since 1970)."""
    to_ms: int = INT64_MAX
    """The window of time ends before the first record at or after this time (ms since 1970). No later
    record is taken."""
    share: float = 1.0
    """The share (0 to 1) of the keys whose records are taken. The same keys are taken in every topic. Of records
    without a key, this share of the records is taken.
    """
    masks: Masks


class CapturedLog:
    """Chooses and masks the records of one log for a capture. Its caller passes the batches of the log in order."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._has_begun = False
        self._open: dict[int, BatchHeader] = {}
        """The last batch of each open transaction of which the capture has records, by producer id."""
        self.end_offset: int | None = None
        """The offset of the first record behind the window of time; None until that record was met."""
        self.start_offset: int | None = None
        """The offset of the first record in the window of time; None until that record was met."""
        self.record_count = 0
        """The number of records that the capture took from this log."""

    @property
    def is_complete(self) -> bool:
        """Whether the capture needs no later batch of this log."""
        return self.end_offset is not None and not self._open

    def taken(self, header: BatchHeader, batch: BytesLike) -> bytes | None:
        """Return the batch with which the capture replaces a batch of the log. Return None if the capture takes nothing
        of it. Raises `MalformedMessage`."""
        if header.is_control:
            ended = self._open.pop(header.producer_id, None)
            return None if ended is None else bytes(batch)
        if self.end_offset is not None or (not self._has_begun and header.max_timestamp < self._window.from_ms):
            return None
        kept = list(self._selected(header, batch))
        if not kept:
            return None
        self.record_count += len(kept)
        if header.is_transactional:
            self._open[header.producer_id] = header
        if len(kept) == header.records_count and not self._window.masks:
            return bytes(batch)
        masks = self._window.masks
        append_ms = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        return build_batch(
            [masks.applied(record) for record in kept] if masks else kept,
            base_offset=header.base_offset,
            codec=header.codec,
            log_append_time_ms=append_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            partition_leader_epoch=header.partition_leader_epoch,
            last_offset=header.last_offset,
        )

    def aborts(self, offset: int) -> Iterator[bytes]:
        """Yield an abort marker for each transaction that is open at the end of the log, at the offsets from `offset`
        on."""
        for place, (producer_id, last) in enumerate(self._open.items()):
            yield end_transaction_marker(
                commits=False,
                producer_id=producer_id,
                producer_epoch=last.producer_epoch,
                coordinator_epoch=0,
                timestamp=last.max_timestamp,
                base_offset=offset + place,
                partition_leader_epoch=last.partition_leader_epoch,
            )

    def _selected(self, header: BatchHeader, batch: BytesLike) -> Iterator[Record]:
        window = self._window
        for record in records_of(batch, 0, header, size_max=EXPANDED_SIZE_MAX, record_size_max=EXPANDED_SIZE_MAX):
            if self._has_begun and record.timestamp >= window.to_ms:
                self.end_offset = record.offset
                return
            if not self._has_begun:
                if record.timestamp < window.from_ms:
                    continue
                if record.timestamp >= window.to_ms:
                    self.start_offset = self.end_offset = record.offset
                    return
                self._has_begun, self.start_offset = True, record.offset
            if window.share >= 1 or _is_sampled(record, window.share):
                yield record


def _is_sampled(record: Record, share: float) -> bool:
    drawn = record.offset.to_bytes(8) if record.key is None else record.key
    return int.from_bytes(blake2b(drawn, digest_size=SAMPLE_BITS // 8).digest()) < share * (1 << SAMPLE_BITS)
