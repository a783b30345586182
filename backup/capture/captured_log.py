"""The records of one partition's log that a capture takes: those of a window of time, sampled and masked.

The window is a range of offsets, which ListOffsets finds by time. It starts at the first record at or after the begin
of the window. It ends before the first record at or after the end of the window. Records in between belong to it, even
if their timestamps do not lie in the window. Records keep offsets, timestamps, producers and sequences.

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

SAMPLE_HASH_BITS: Final = 64
DECOMPRESSED_SIZE_MAX: Final = 1 << 30
"""The largest decompressed size (bytes) of the records of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFilter:
    """Chooses the records of a topic for a capture: by time, by a sample of the keys, and with masks."""

    from_ms: int = -1
    """The start of the time window (ms since 1970): the window begins with the first record that has this or a later
    timestamp.
    """
    to_ms: int = INT64_MAX
    """The end of the time window (ms since 1970): the window ends before the first record that has this or a later
    timestamp.
    """
    sample_ratio: float = 1.0
    """The fraction (0 to 1) of the keys whose records are captured. The chosen keys are the same in every topic.
    Records without a key are sampled one by one, in the same ratio."""
    masks: Masks


class LogCapture:
    """Chooses and masks the records of one log for a capture. The caller passes all batches of the log, in order."""

    def __init__(self, window: CaptureFilter) -> None:
        self._window = window
        self._has_begun = False
        self._open: dict[int, BatchHeader] = {}
        """The last batch of each open transaction of which the capture has records, by producer id."""
        self.end_offset: int | None = None
        """The offset of the first record after the time window; None until that record was read."""
        self.start_offset: int | None = None
        """The offset of the first record in the time window; None until that record was read."""
        self.record_count = 0

    @property
    def needs_no_more_batches(self) -> bool:
        """Whether all records of the time window are captured, and the markers of their transactions."""
        return self.end_offset is not None and not self._open

    def captured_batch(self, header: BatchHeader, batch: BytesLike) -> bytes | None:
        """Return the captured form of a batch: its chosen records, masked. Returns None if no record of it is captured.
        Raises `MalformedMessage`.
        """
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
            [masks.mask_record(record) for record in kept] if masks else kept,
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

    def abort_markers(self, offset: int) -> Iterator[bytes]:
        """Yield an abort marker for each transaction that is still open when the log ends. The markers get the offsets
        from `offset` on.
        """
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
        for record in records_of(
            batch, 0, header, size_max=DECOMPRESSED_SIZE_MAX, record_size_max=DECOMPRESSED_SIZE_MAX
        ):
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
            if window.sample_ratio >= 1 or _is_sampled(record, window.sample_ratio):
                yield record


def _is_sampled(record: Record, share: float) -> bool:
    drawn = record.offset.to_bytes(8) if record.key is None else record.key
    return int.from_bytes(blake2b(drawn, digest_size=SAMPLE_HASH_BITS // 8).digest()) < share * (1 << SAMPLE_HASH_BITS)
