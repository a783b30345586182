"""The transaction index of a remote segment, made again from its batches.

A transaction that ends in the segment may have begun before it, and a later one may be open at its end. So the walk
begins with the producer snapshot of the segment before, which holds the transactions that are open there. The first
segment of a log needs none: nothing before it is read. The segments of a compacted topic are not walked: cleaning
removes markers, and without them a transaction would seem to begin earlier than it did.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.protocol.checksum import crc32c
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, HEADER_SIZE, crc_is_valid, parse_header
from moldau.storage.log.verified_batch import DamagedBatch
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.producers.transaction_marker import read_transaction_marker
from moldau.storage.segment.transaction_index import ENTRY, VERSION
from moldau.storage.tiered.errors import CorruptObject
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import RemoteStorage, get_all
from moldau.storage.tiered.segment_copy import get_manifest

SNAPSHOT_SIZE_MAX = 1 << 30


class TransactionWalk:
    """The aborted transactions of the batches that it is given, piece by piece. It blocks for CPU time, without I/O."""

    def __init__(self, start_offset: int, snapshot: BytesLike | None) -> None:
        """`snapshot`: the producers before `start_offset`; None at the start of a log. Raises `CorruptSnapshot`."""
        self._producers = ProducerStates()
        # At time 0 no producer has expired: an open transaction counts however old it is.
        self._producers.restore([] if snapshot is None else decode_snapshot(snapshot), start_offset, 0)
        self._rest = b""
        self._position = 0
        self._entries = bytearray()

    @property
    def index(self) -> bytes:
        """The transaction index of the batches so far."""
        return bytes(self._entries)

    def take(self, piece: BytesLike) -> None:
        """Walk over the batches that are whole with the next piece. Raises `DamagedBatch`."""
        data, inside = self._rest + bytes(piece), 0
        while inside + HEADER_SIZE <= len(data):
            try:
                header = parse_header(data, inside)
                if inside + header.size > len(data):
                    break
                if not crc_is_valid(data, inside, header):
                    raise DamagedBatch(self._position + inside, "checksum mismatch")
                batch = data[inside : inside + header.size] if header.attributes & CONTROL_BIT else b""
                marker = read_transaction_marker(batch) if batch else None
            except MalformedMessage as malformed:
                raise DamagedBatch(self._position + inside, str(malformed)) from None
            completed = self._producers.replay(header, marker)
            if completed is not None and completed.is_aborted:
                self._entries += ENTRY.pack(VERSION, *self._producers.aborted(completed))
            self._producers.on_high_watermark(self._producers.map_end_offset)
            inside += header.size
        self._rest, self._position = data[inside:], self._position + inside

    def finish(self) -> None:
        """Check that the last piece ended with a whole batch. Raises `DamagedBatch`."""
        if self._rest:
            raise DamagedBatch(self._position, f"no whole batch in the last {len(self._rest)} bytes,")


async def walk_of(
    storage: RemoteStorage,
    cluster_id: str,
    partition: RemotePartition,
    segment: RemoteSegment,
    remote_log: RemoteLog | None,
) -> TransactionWalk:
    """A walk that begins with the transactions that are open at the start of a segment.

    Raises `RemoteStorageError`: `CorruptObject` also where they cannot be known.
    """
    earlier = [] if remote_log is None else list(_earlier(remote_log, segment))
    adjacent = [each for each in earlier if each.last_offset + 1 == segment.start_offset]
    if remote_log is None or segment.custom_metadata is not None or (earlier and len(adjacent) != 1):
        key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.TRANSACTION_INDEX)
        raise CorruptObject(f"{key} is damaged, and the transactions that are open before it are not known")
    if not earlier:
        return TransactionWalk(segment.start_offset, None)
    before = adjacent[0]
    manifest = await get_manifest(storage, cluster_id, partition, before)
    key = object_key(partition, before.start_offset, before.segment_id, ObjectKind.PRODUCER_SNAPSHOT)
    summary = manifest.objects[ObjectKind.PRODUCER_SNAPSHOT]
    data = await get_all(storage, key, min(summary.size + 1, SNAPSHOT_SIZE_MAX))
    if (len(data), crc32c(data, 0)) != summary:
        raise CorruptObject(f"{key} does not have the size and the checksum that its manifest states")
    try:
        return TransactionWalk(segment.start_offset, data)
    except CorruptSnapshot as error:
        raise CorruptObject(f"{key}: {error}") from None


def _earlier(remote_log: RemoteLog, segment: RemoteSegment) -> Iterator[RemoteSegment]:
    """The segments that are read and begin before this one, in the order of their offsets."""
    for each in remote_log.read_segments():
        if each.start_offset < segment.start_offset:
            yield each
