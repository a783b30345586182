"""The inner loop of recovery: it checks plain batches one after another, and collects what recovery has to note of
them.

A batch is plain if recovery has no decision to make about it: it is complete, its checksum is valid, its offsets are
past those of the batch before it, and the leader epoch has not changed. Outside of transactions the epoch of its
producer has not changed either. Nearly all batches are plain. The walk stops at the first batch that is not plain:
`TailRecovery` decides about it.

Ordinary typed Python that `building/` compiles: one call for many batches, and machine integers inside.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

_FIELDS = Struct(">qiibIhi8xqqhi")
"""The struct of a batch header. The base timestamp and the count of records are left out."""
ProducerBatchFields: TypeAlias = tuple[int, int, int, int, int]
"""A producer's batch: its first and last sequence, last offset, offset delta and largest timestamp."""
TransactionalBatchFields: TypeAlias = tuple[int, int, int, int, int, int, int, bytes]
"""A batch of a transaction: its attributes, producer id, producer epoch, first sequence, first offset, offset delta and
largest timestamp; and the bytes of the batch if it is a marker, else no bytes."""


class BatchRun:
    """The state of the walk over plain batches, and the entries that it has collected since the last `clear`."""

    __slots__ = (
        "batches_kept_max",
        "bytes_since_index_entry",
        "index_entries",
        "index_interval_bytes",
        "leader_epoch",
        "limit_offset",
        "max_timestamp",
        "next_offset",
        "offset_of_max_timestamp",
        "producers",
        "producers_offset",
        "transactional",
        "transactional_ids",
    )

    def __init__(
        self, next_offset: int, leader_epoch: int, limit_offset: int, producers_offset: int, batches_kept_max: int
    ) -> None:
        self.next_offset: int = next_offset
        self.leader_epoch: int = leader_epoch
        self.limit_offset: int = limit_offset
        """The offset at and past which no batch is plain, because the next segment begins there."""
        self.producers_offset: int = producers_offset
        """The end (exclusive) of the part of the log that the producer state already covers. Batches before it are not
        collected."""
        self.batches_kept_max: int = batches_kept_max
        """The most batches that are collected of one producer; these are its last ones."""
        self.index_interval_bytes: int = 0
        self.bytes_since_index_entry: int = 0
        self.max_timestamp: int = -1
        self.offset_of_max_timestamp: int = -1
        self.index_entries: list[tuple[int, int, int, int]] = []
        """For each batch that gets an entry in the indexes: its last offset and position, the largest timestamp so far,
        and the offset of that timestamp."""
        self.producers: dict[int, tuple[int, list[ProducerBatchFields]]] = {}
        """For each producer id, its epoch and its last batches outside of transactions, in order."""
        self.transactional: list[TransactionalBatchFields] = []
        """The batches and markers of transactions that were collected, in order."""
        self.transactional_ids: set[int] = set()
        """The producer ids of the batches in `transactional`. Batches of these producers outside of transactions are
        not plain."""

    def clear(self) -> None:
        """Discard the collected entries, after the caller has applied them."""
        self.index_entries = []
        self.producers = {}
        self.transactional = []
        self.transactional_ids = set()

    def check_batches(self, piece: bytes, start: i64, piece_position: i64) -> int:
        """Check and collect plain batches from `piece[start]` on. Returns the index in `piece` of the first batch that
        is not plain, or not complete in `piece`. `piece_position`: the position of `piece` in the file.
        """
        at: i64 = start
        end: i64 = len(piece)
        view = memoryview(piece)
        next_offset: i64 = self.next_offset
        limit_offset: i64 = self.limit_offset
        producers_offset: i64 = self.producers_offset
        leader_epoch: i64 = self.leader_epoch
        interval: i64 = self.index_interval_bytes
        since_entry: i64 = self.bytes_since_index_entry
        max_timestamp: i64 = self.max_timestamp
        offset_of_max_timestamp: i64 = self.offset_of_max_timestamp
        base_offset: i64
        length: i64
        epoch: i64
        magic: i64
        attributes: i64
        delta: i64
        timestamp: i64
        producer_id: i64
        unpack = _FIELDS.unpack_from
        while at + HEADER_SIZE <= end:
            # fmt: off
            (base_offset, length, epoch, magic, crc, attributes, delta,
             timestamp, producer_id, producer_epoch, sequence) = unpack(piece, at)
            # fmt: on
            if magic != MAGIC or length < LENGTH_MIN or at + length + LOG_OVERHEAD > end:
                break
            if base_offset < next_offset or base_offset >= limit_offset or delta < 0 or epoch != leader_epoch:
                break
            size: i64 = length + LOG_OVERHEAD
            if crc32c(view[at + ATTRIBUTES_POSITION : at + size], 0) != crc:
                break
            if producer_id >= 0 and base_offset + delta >= producers_offset:
                if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
                    if producer_id not in self.transactional_ids:
                        if producer_id in self.producers:
                            break
                        self.transactional_ids.add(producer_id)
                        self.producers[producer_id] = (producer_epoch, [])
                    marker = piece[at : at + size] if attributes & CONTROL_BIT else b""
                    self.transactional.append(
                        (attributes, producer_id, producer_epoch, sequence, base_offset, delta, timestamp, marker)
                    )
                elif sequence == NO_SEQUENCE or producer_id in self.transactional_ids:
                    break
                else:
                    batch = (sequence, (sequence + delta) & SEQUENCE_MAX, base_offset + delta, delta, timestamp)
                    if not self._has_noted(producer_id, producer_epoch, batch):
                        break
            next_offset = base_offset + delta + 1
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                offset_of_max_timestamp = next_offset - 1
            if since_entry > interval:
                since_entry = size
                self.index_entries.append(
                    (next_offset - 1, piece_position + at, max_timestamp, offset_of_max_timestamp)
                )
            else:
                since_entry += size
            at += size
        self.next_offset = next_offset
        self.bytes_since_index_entry = since_entry
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        return at

    def _has_noted(self, producer_id: int, epoch: int, batch: ProducerBatchFields) -> bool:
        """Collect a batch of a producer outside of transactions. Returns False, without a change, if the collected
        batches of the producer have another epoch."""
        known = self.producers.get(producer_id)
        if known is None:
            self.producers[producer_id] = (epoch, [batch])
            return True
        if known[0] != epoch:
            return False
        if len(known[1]) == self.batches_kept_max:
            del known[1][0]
        known[1].append(batch)
        return True
