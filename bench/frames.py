"""Encoded requests for the load generator, and the positions of the bytes in them that change."""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple

from moldau.protocol import frames
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CRC_POSITION
from moldau.protocol.record_builder import Record, build_batch

CLIENT_ID: Final = "bench"
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
"""The last version with topic names, which is flexible."""
RECORD_VALUE_SIZE_MAX: Final = 1000
"""The largest value. Larger batches have several records, because producers do not send one record of 256 KiB."""

_PATCH_INT32 = struct.Struct(">i").pack_into
_PATCH_UINT32 = struct.Struct(">I").pack_into
_SEQUENCE_POSITION: Final = 53
"""The position of the base sequence in a batch."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that the broker gave to an idempotent producer."""

    id: int
    epoch: int


class SequencePatch(NamedTuple):
    """The data to set the sequence of an encoded produce request without decoding it. CRC-32C is linear, so each byte
    of the sequence changes the checksum by a value from a table, independent of all other bytes.
    """

    sequence_position: int
    """The position of the base sequence in the frame."""
    crc_position: int
    base: int
    """The checksum at sequence 0."""
    parts: array[int]
    """A table of 4 x 256 checksum changes, for each byte of the sequence, the first byte first."""


class Frames:
    """Copies of one encoded request one after the other, so that several are sent in one call. They are used
    cyclically.
    """

    sequencing: SequencePatch | None = None
    first: int = 0

    def __init__(self, frame: bytes, count: int) -> None:
        self.frame_size = len(frame)
        self.count = count
        self.buffer = bytearray(frame * count)
        self._view = memoryview(self.buffer)

    def next_frames(self, count: int) -> memoryview:
        """Return the next `count` requests as one buffer, which must be sent before the next call."""
        return self._view[: min(count, self.count) * self.frame_size]


class SequencedFrames(Frames):
    """Produce requests of an idempotent producer with one record each. The sequence and the checksum are changed in
    place.
    """

    def __init__(self, frame: bytes, batch: bytes, count: int) -> None:
        super().__init__(frame, count)
        position = frame.index(batch)
        self.sequencing = self._sequencing = _sequencing(batch, position)
        self._sequence = 0

    def next_frames(self, count: int) -> memoryview:
        buffer, parts = self.buffer, self._sequencing.parts
        count = min(count, self.count)
        for start in range(0, count * self.frame_size, self.frame_size):
            sequence = self._sequence
            _PATCH_INT32(buffer, start + self._sequencing.sequence_position, sequence)
            crc = self._sequencing.base ^ parts[sequence >> 24] ^ parts[256 + (sequence >> 16 & 255)]
            crc ^= parts[512 + (sequence >> 8 & 255)] ^ parts[768 + (sequence & 255)]
            _PATCH_UINT32(buffer, start + self._sequencing.crc_position, crc)
            self._sequence += 1
        return self._view[: count * self.frame_size]


def _sequencing(batch: bytes, position: int) -> SequencePatch:
    changed = bytearray(batch)
    changed[_SEQUENCE_POSITION : _SEQUENCE_POSITION + 4] = bytes(4)
    covered = memoryview(changed)[ATTRIBUTES_POSITION:]
    base = crc32c(covered, 0)
    parts = array("I")
    for place in range(_SEQUENCE_POSITION, _SEQUENCE_POSITION + 4):
        for value in range(256):
            changed[place] = value
            parts.append(crc32c(covered, 0) ^ base)
        changed[place] = 0
    return SequencePatch(position + _SEQUENCE_POSITION, position + CRC_POSITION, base, parts)


class RotatingFrames(Frames):
    """Different requests of the same size, used cyclically."""

    def __init__(self, frames: list[bytes], first: int) -> None:
        super().__init__(b"".join(frames), 1)
        self.frame_size = len(frames[0])
        assert all(len(frame) == self.frame_size for frame in frames)
        self.count = len(frames)
        self.first = self._at = first % len(frames)

    def next_frames(self, count: int) -> memoryview:
        if self._at == self.count:
            self._at = 0
        count = min(count, self.count - self._at)
        start = self._at * self.frame_size
        self._at += count
        return self._view[start : start + count * self.frame_size]


def request_frame(message: object, version: int, correlation_id: int = 0) -> bytes:
    """Encode a request, with its size in front."""
    return frames.size_prefixed(frames.request_frame(message, version, correlation_id, CLIENT_ID.encode()))


def batch_of(value_sizes: list[int], now_ms: int, producer: ProducerIdentity | None = None) -> bytes:
    """Make a batch of records without keys whose values have these sizes."""
    noise = bytes((7 * index * index + index) & 0xFF for index in range(max(value_sizes)))
    records = [Record(value=noise[:size], timestamp=now_ms) for size in value_sizes]
    if producer is None:
        return build_batch(records)
    return build_batch(records, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0)


def produce_frame(topic: str, batch: bytes, partition: int = 0, version: int = PRODUCE_VERSION) -> bytes:
    """Encode a produce request to one partition with acks=all."""
    data = PartitionProduceData(index=partition, records=batch)
    topic_data = TopicProduceData(name=topic, partition_data=[data])
    return request_frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic_data]), version)


def batch_for_frame_size(topic: str, size: int, now_ms: int) -> bytes:
    """Make a batch whose produce request has about this size, to a few bytes, in records of up to 1000 bytes."""
    value_size = size - len(produce_frame(topic, batch_of([1], now_ms)))
    count = -(-value_size // RECORD_VALUE_SIZE_MAX)
    framing_size = (len(batch_of([RECORD_VALUE_SIZE_MAX] * (count + 1), now_ms)) - 61) // (count + 1) - 1000
    return batch_of([value_size // count - (framing_size if count > 1 else 0)] * count, now_ms)


def fetch_frame(topic: str, offset: int, size_max: int, partition: int = 0) -> bytes:
    """Encode a fetch of one partition without a fetch session."""
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size_max)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    return request_frame(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=size_max, topics=topics), FETCH_VERSION)


def produce_error_position(topic: str) -> int:
    """Return the position of the partition's error code in a produce reply: after size, correlation id, tags, topic and
    index.
    """
    return 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def fetch_error_position(topic: str) -> int:
    """Return the position of the partition's error code in a fetch reply: after throttle time, error, session and
    topic.
    """
    return 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(topic) + 1 + 4
