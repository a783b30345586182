"""The remote segments of a partition, as their manifests described them when they were listed. The driver also reads
their indexes, compares these with the manifests, and keeps them in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import HEADER_SIZE, parse_header
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.segment.transaction_index import AbortedTransaction, CorruptTransactionIndex, decode_entries
from moldau.storage.tiered.layout import ObjectKind, SegmentObject
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, decode_manifest
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound
from moldau.tables.origins.blocking_storage import BlockingStorage
from moldau.tables.origins.port import SegmentPart, StoredSegment
from moldau.tables.origins.tiered_listing import SegmentRange, TieredListing, TieredSegment, offset_ranges_of
from moldau.tables.origins.tiered_segments import TieredSegments

_start_offset = attrgetter("start_offset")
WALK_SIZE = 1 << 20
"""The bytes of one request for batches in which a record is searched for."""
INDEX_SIZE = 4 << 20
"""The most bytes of a small object that are requested at the same time as its manifest. If the manifest states a larger
size, the object is requested again with that size."""


class TieredPartition:
    """The `PartitionOrigin` of a tiered storage. Its methods raise FileNotFoundError if an object was deleted after the
    listing, so that the planner lists again. They also raise `CorruptObject` and other `RemoteStorageError`s.
    """

    def __init__(
        self,
        storage: BlockingStorage,
        source: TieredSegments,
        partition: RemotePartition,
        listed: TieredListing,
    ) -> None:
        self._storage = storage
        self._stretches: list[SegmentRange] = offset_ranges_of(listed.segments)
        self.incomplete: Sequence[SegmentObject] = listed.incomplete
        self.key: TopicPartition = (partition.topic, partition.partition)
        self.topic_id: bytes | None = partition.topic_id
        self.place = str(source.address)
        self.node_id: int | None = None
        self.tier = "remote"
        self.source = source
        self._started: dict[str, ObjectResponses] = {}
        """The reads of offset indexes that were started before they are needed, by the stem of the segment."""
        suffix = ObjectKind.LOG.value
        self.segments: Sequence[StoredSegment] = [
            StoredSegment(
                start,
                end,
                each.size,
                each.stem + suffix,
                False,
                batches_start=each.start_offset,
                batches_end=each.last_offset + 1,
                is_dense=each.cleaned_end_offset <= each.start_offset,
            )
            for start, end, each in self._stretches
        ]
        self.log_start_offset = self.segments[0].start_offset if self.segments else 0
        self.log_start_known = 0
        self.high_watermark = self.segments[-1].end_offset if self.segments else 0
        self.is_checkpointed = bool(self.segments)
        self.may_have_gaps = False
        self.lost_segments: Sequence[int] = ()

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    def last_stable_offset(self) -> int:
        """The last stable offset, from the producer snapshot of the last segment, which has the state at the end of
        that segment."""
        if not self._stretches:
            return self.high_watermark
        last = self._stretches[-1].segment
        key = self._key(last, ObjectKind.PRODUCER_SNAPSHOT)
        try:
            entries = decode_snapshot(self._object(last, ObjectKind.PRODUCER_SNAPSHOT))
        except CorruptSnapshot as corrupt:
            raise CorruptObject(f"{key}: {corrupt}") from None
        opened = [each.open_transaction_offset for each in entries if each.open_transaction_offset >= 0]
        return max(self.log_start_offset, min([*opened, self.high_watermark]))

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions whose marker is in a remote segment, sorted by first offset."""
        found: list[AbortedTransaction] = []
        for stretch in self._stretches[self._slot_of(start_offset) :]:
            segment = stretch.segment
            if not segment.has_transaction_index or segment.last_offset < start_offset:
                continue
            key = self._key(segment, ObjectKind.TRANSACTION_INDEX)
            try:
                entries = decode_entries(key, self._object(segment, ObjectKind.TRANSACTION_INDEX))
            except CorruptTransactionIndex as corrupt:
                raise CorruptObject(f"{key}: {corrupt.strerror}") from None
            found += [each for each in entries if each.last_offset >= start_offset and each.first_offset < end_offset]
            if any(each.last_stable_offset >= end_offset for each in entries if each.last_offset >= start_offset):
                break
        return sorted(set(found), key=lambda each: each.first_offset)

    def cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> list[SegmentPart]:
        """Return the batches with offsets in [start_offset, end_offset), in cuts of about `slice_size` bytes
        (`PartitionOrigin.cuts`). A segment that fits into one slice needs only its manifest, any other one its index.
        The first and the last cut may have batches outside of the offsets, which the task leaves out."""
        tiered = self._stretches[self._slot_of(segment.start_offset)].segment
        if _is_one_slice(tiered, start_offset, end_offset, slice_size):
            return [SegmentPart(0, segment.size, None)]
        index = self._index(tiered)
        start = 0 if start_offset <= tiered.start_offset else index.position_at_or_before(start_offset)
        past = None if end_offset > tiered.last_offset else index.position_past(end_offset)
        end = segment.size if past is None else past
        if start >= end:
            return []
        starts = index.cuts(start, end, slice_size)
        return [SegmentPart(*each, None) for each in zip(starts, [*starts[1:], end], strict=True)]

    def start_cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> None:
        tiered = self._stretches[self._slot_of(segment.start_offset)].segment
        if tiered.stem not in self._started and not _is_one_slice(tiered, start_offset, end_offset, slice_size):
            self._started[tiered.stem] = self._start_object(tiered, ObjectKind.OFFSET_INDEX)

    def offset_at(self, timestamp_ms: int) -> int | None:
        for start_offset, end_offset, segment in self._stretches:
            if segment.max_timestamp_ms >= timestamp_ms:
                found = self._offset_in(segment, timestamp_ms, start_offset, end_offset)
                if found is not None:
                    return found
        return None

    def largest_timestamp(self, segment: StoredSegment) -> int | None:
        timestamp = self._stretches[self._slot_of(segment.start_offset)].segment.max_timestamp_ms
        return timestamp if timestamp >= 0 else None

    def has_changed(self) -> bool:
        """Return False, because objects are never changed, and a task notices an object that was deleted."""
        return False

    def _offset_in(self, segment: TieredSegment, timestamp_ms: int, start_offset: int, end_offset: int) -> int | None:
        time_key = self._key(segment, ObjectKind.TIME_INDEX)
        times = self._object(segment, ObjectKind.TIME_INDEX)
        indexed = indexed_offset(time_key, times, segment.start_offset, timestamp_ms)
        position = self._index(segment).position_at_or_before(max(indexed, start_offset))
        for batch in self._batches(segment, position):
            header = parse_header(batch, 0, True)
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for record in records_of(batch):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return record.offset if record.offset < end_offset else None
        return None

    def _batches(self, segment: TieredSegment, position: int) -> Iterator[bytes]:
        """Yield the whole batches of a segment from `position` on. Raises `MalformedMessage`, which
        names the object."""
        key = self._key(segment, ObjectKind.LOG)
        data = b""
        while position < segment.size:
            try:
                size = parse_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
            except MalformedMessage as malformed:
                raise MalformedMessage(f"{key}, position {position}: {malformed}") from None
            if len(data) < max(size, HEADER_SIZE):
                wanted = min(max(size, WALK_SIZE), segment.size - position)
                data = self._read(key, position, wanted)
                if len(data) < min(wanted, HEADER_SIZE) or len(data) < size <= wanted:
                    raise MalformedMessage(f"{key}: it ends before the batch at position {position}")
                if parse_header(data).size > len(data) and len(data) == segment.size - position:
                    raise MalformedMessage(f"{key}: no whole batch at position {position}")
                continue
            yield data[:size]
            data, position = data[size:], position + size

    def _index(self, segment: TieredSegment) -> RemoteOffsetIndex:
        key = self._key(segment, ObjectKind.OFFSET_INDEX)
        started = self._started.pop(segment.stem, None)
        return RemoteOffsetIndex(key, self._object(segment, ObjectKind.OFFSET_INDEX, started), segment.start_offset)

    def _start_object(self, segment: TieredSegment, kind: ObjectKind) -> ObjectResponses:
        """Start to read a small object of a segment, and the manifest that describes it."""
        start = self._storage.start_get_whole
        manifest = start(self._key(segment, ObjectKind.MANIFEST), MANIFEST_SIZE_MAX)
        return ObjectResponses(manifest, start(self._key(segment, kind), INDEX_SIZE))

    def _object(self, segment: TieredSegment, kind: ObjectKind, started: ObjectResponses | None = None) -> bytes:
        """Read a small object of a segment, and compare it with the manifest."""
        answers = started or self._start_object(segment, kind)
        manifest = decode_manifest(self._key(segment, ObjectKind.MANIFEST), _found(answers.manifest))
        summary = manifest.objects[kind]
        key = self._key(segment, kind)
        data = _found(answers.data)
        if len(data) == INDEX_SIZE < summary.size:
            data = self._read(key, 0, summary.size + 1)
        if (len(data), crc32c(data, 0)) != summary:
            raise CorruptObject(f"{key} does not have the size and the checksum that its manifest states")
        return data

    def _read(self, key: str, position: int, size: int) -> bytes:
        try:
            return bytes(self._storage.get(key, position, size))
        except ObjectNotFound as gone:
            raise FileNotFoundError(str(gone)) from None

    @staticmethod
    def _key(segment: TieredSegment, kind: ObjectKind) -> str:
        return segment.stem + kind.value

    def _slot_of(self, offset: int) -> int:
        return max(0, bisect_right(self._stretches, offset, key=_start_offset) - 1)


class ObjectResponses(NamedTuple):
    """The futures of two requests: for a small object, and for the manifest that describes it."""

    manifest: Future[BytesLike]
    data: Future[BytesLike]


def _found(answer: Future[BytesLike]) -> bytes:
    """Wait for an object. Raises FileNotFoundError if it does not exist, and other `RemoteStorageError`s."""
    try:
        return bytes(answer.result())
    except ObjectNotFound as gone:
        raise FileNotFoundError(str(gone)) from None


def _is_one_slice(segment: TieredSegment, start_offset: int, end_offset: int, slice_size: int) -> bool:
    """Whether a whole segment is read, as one slice, so that its index is not needed."""
    is_whole = start_offset <= segment.start_offset and end_offset > segment.last_offset
    return is_whole and segment.size <= slice_size


ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


class RemoteOffsetIndex:
    """The offset index of a remote segment. An entry has an offset of a batch, and the position of that batch."""

    def __init__(self, key: str, data: bytes, start_offset: int) -> None:
        """Parse an offset index. Raises `CorruptObject`."""
        entries = list(ENTRY.iter_unpack(whole_entries(key, data, ENTRY.size)))
        self._offsets = array("q", [start_offset + offset for offset, _ in entries])
        self._positions = array("q", [position for _, position in entries])

    def position_at_or_before(self, offset: int) -> int:
        """The position of the last indexed batch that begins at or before the batch with `offset`; 0 if
        there is none."""
        slot = bisect_right(self._offsets, offset)
        return self._positions[slot - 1] if slot else 0

    def position_past(self, offset: int) -> int | None:
        """The position of a batch whose records are all at or past `offset`; None if no index entry gives one."""
        # The entry may have the last offset of its batch: only the next one begins past the offset for certain.
        slot = bisect_left(self._offsets, offset) + 1
        return self._positions[slot] if slot < len(self._positions) else None

    def cuts(self, start_position: int, end_position: int, slice_size: int) -> list[int]:
        """The positions between `start_position` and `end_position` at which slices of at least `slice_size` bytes
        begin."""
        found = [start_position]
        while True:
            slot = bisect_left(self._positions, found[-1] + slice_size)
            if slot == len(self._positions) or self._positions[slot] >= end_position:
                return found
            found.append(self._positions[slot])


def indexed_offset(key: str, data: bytes, start_offset: int, timestamp_ms: int) -> int:
    """Find in a time index the offset at which to begin the search for the first record at or after `timestamp_ms`.
    Raises `CorruptObject`."""
    offset = start_offset
    for timestamp, delta in TIME_ENTRY.iter_unpack(whole_entries(key, data, TIME_ENTRY.size)):
        if timestamp > timestamp_ms:
            break
        offset = start_offset + delta
    return offset


def whole_entries(key: str, data: bytes, entry_size: int) -> bytes:
    if len(data) % entry_size:
        raise CorruptObject(f"{key}: {len(data)} bytes are not whole entries")
    return data
