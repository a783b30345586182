"""What must be in the objects of a copied segment, by what was committed.

.log                       the committed batches, whole and one after the other, from the first offset to the last
.index                     each entry is a batch of the .log, at its place
.timeindex                 each entry names an offset of the segment, and a time that a record before it has
.txnindex                  the aborted transactions whose markers are in the segment, in their order
.leader_epoch_checkpoint   the leader epoch of each batch
.snapshot                  what each producer had written last, before the end of the segment
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_batch import crc_is_valid
from moldau.storage.checkpoints.leader_epochs import decode_epochs
from moldau.storage.producers.producer_snapshot import decode_snapshot
from moldau.storage.segment.transaction_index import ENTRY as ABORTED
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from tests.simulation.invariants.aborted_transactions import aborted_of
from tests.simulation.invariants.observation import StoredBatch, Violation

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


def check_contents(
    contents: Mapping[ObjectKind, bytes],
    segment: RemoteSegment,
    committed: Mapping[int, StoredBatch],
    key: str,
    *,
    deleted_end: int,
) -> None:
    """`deleted_end`: where the log begins, or began (exclusive). Raises `Violation`."""
    places = _check_log(contents[ObjectKind.LOG], segment, committed, key)
    _check_offset_index(contents[ObjectKind.OFFSET_INDEX], segment, places, key)
    for _, relative in TIME_ENTRY.iter_unpack(_whole(contents[ObjectKind.TIME_INDEX], TIME_ENTRY)):
        if not 0 <= relative <= segment.last_offset - segment.start_offset:
            raise Violation(f"{key}: the time index names offset {segment.start_offset + relative}")
    before = [each for base, each in sorted(committed.items()) if base <= segment.last_offset]
    _check_aborted(contents.get(ObjectKind.TRANSACTION_INDEX, b""), segment, before, key)
    _check_epochs(contents[ObjectKind.LEADER_EPOCHS], segment, before, key, deleted_end)
    _check_producers(contents[ObjectKind.PRODUCER_SNAPSHOT], before, key)


def check_cleaned(data: bytes, segment: RemoteSegment, key: str) -> None:
    """Of a compacted topic: the batches that are left ascend, in the range of the segment, each in the leader epoch
    that the metadata has there. Raises `Violation`."""
    next_offset = segment.start_offset
    for _, header in iterate_batches(data):
        named = max((each for each in segment.epochs if each.start_offset <= header.base_offset), default=None)
        if header.base_offset < next_offset or header.last_offset > segment.last_offset:
            raise Violation(f"{key} holds offsets {header.base_offset} to {header.last_offset} after {next_offset}")
        if named is None or named.epoch != header.partition_leader_epoch:
            raise Violation(f"{key} holds epoch {header.partition_leader_epoch}, the metadata says {named}")
        next_offset = header.next_offset


def _check_log(
    data: bytes, segment: RemoteSegment, committed: Mapping[int, StoredBatch], key: str
) -> dict[int, tuple[int, int]]:
    """Position in the file, base and last offset of each batch."""
    places: dict[int, tuple[int, int]] = {}
    next_offset = segment.start_offset
    for position, header in iterate_batches(data):
        if not crc_is_valid(data, position, header):
            raise Violation(f"{key}: the checksum of the batch at offset {header.base_offset} is wrong")
        known = committed.get(header.base_offset)
        identity = (header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)
        if known is None or known.identity != identity or header.base_offset != next_offset:
            held = None if known is None else known.identity
            raise Violation(f"{key} holds {identity} at offset {next_offset}; committed is {held}")
        places[position] = (header.base_offset, header.last_offset)
        next_offset = header.next_offset
    if next_offset != segment.last_offset + 1:
        raise Violation(f"{key} ends at {next_offset}, its segment at {segment.last_offset + 1}")
    return places


def _check_offset_index(data: bytes, segment: RemoteSegment, places: Mapping[int, tuple[int, int]], key: str) -> None:
    for relative, position in OFFSET_ENTRY.iter_unpack(_whole(data, OFFSET_ENTRY)):
        offset = segment.start_offset + relative
        base_offset, last_offset = places.get(position, (-1, -1))
        if not base_offset <= offset <= last_offset:
            raise Violation(f"{key}: the offset index says that {offset} is at {position}; there is {base_offset}")


def _whole(data: bytes, entry: Struct) -> bytes:
    return data[: len(data) // entry.size * entry.size]


def _check_aborted(data: bytes, segment: RemoteSegment, before: Sequence[StoredBatch], key: str) -> None:
    found = [AbortedTransaction(*fields[1:]) for fields in ABORTED.iter_unpack(data)]
    expected = [each for each in aborted_of(list(before)) if each.last_offset >= segment.start_offset]
    if [each[:3] for each in found] != [each[:3] for each in expected]:
        raise Violation(f"{key}: the transaction index has {found}, aborted are {expected}")


def _check_epochs(
    data: bytes, segment: RemoteSegment, before: Sequence[StoredBatch], key: str, deleted_end: int
) -> None:
    """Of what was deleted at the beginning of the log, the epochs may be forgotten."""
    entries = decode_epochs(data, key)
    inside = [each for each in before if each.base_offset >= segment.start_offset]
    for batch in inside:
        epoch = max((each for each in entries if each.start_offset <= batch.base_offset), default=None)
        named = max((each for each in segment.epochs if each.start_offset <= batch.base_offset), default=None)
        if epoch is None and named is None and batch.base_offset < deleted_end:
            continue
        if epoch is None or named is None or not epoch.epoch == named.epoch == batch.leader_epoch:
            raise Violation(f"{key}: {batch.identity} is of epoch {epoch} by the checkpoint, {named} by the metadata")


def _check_producers(data: bytes, before: Sequence[StoredBatch], key: str) -> None:
    """A producer that wrote nothing for long may be left out."""
    last: dict[int, StoredBatch] = {}
    for batch in before:
        if batch.producer_id >= 0 and not batch.is_marker:
            last[batch.producer_id] = batch
    for entry in decode_snapshot(data):
        written, kept = last.get(entry.producer_id), entry.batches[-1] if entry.batches else None
        if kept is None:
            continue
        if written is None or (kept.last_sequence, kept.last_offset) != (written.last_sequence, written.last_offset):
            raise Violation(f"{key}: the snapshot says that producer {entry.producer_id} wrote {kept}, not {written}")
