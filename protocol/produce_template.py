"""Recognises successive produce requests for one partition by their common bytes, so that they need not be decoded.

They differ only in the correlation id, the sizes and the records:

    request   size · key, version · correlation id · PREFIX (client id to partition index) · size · records · TAGS
    reply     size · correlation id · MIDDLE (topic, index, no error) · base offset, append time, start offset · TAIL
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.primitives import uvarint
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT

CORRELATION_ID: Final = slice(4, 8)
PREFIX_POSITION: Final = 8
FIRST_VERSION: Final = 5
"""The first version whose response has base offset, append time and log start offset in sequence."""
FIRST_FLEXIBLE_VERSION: Final = 9
TAGS: Final = b"\0\0\0"
"""The empty tagged fields of the partition, the topic and the request, in a flexible version."""
TRANSACTIONAL_POSITION: Final = ATTRIBUTES_POSITION + 1
PLACES: Final = struct.Struct(">qqq").pack
MARKS: Final = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)
"""Placeholders for base offset, append time and log start offset, with which their positions in the reply are found."""
SIZE: Final = struct.Struct(">i").unpack_from
REPLY_HEAD: Final = struct.Struct(">i").pack
RECORDS_SIZE_MAX: Final = 1 << 21
"""The limit on the bytes of records in a frame that a template recognises. The compact size of larger records has more
than three bytes."""


class ProduceTemplate:
    """The parts that the frames of one producer for one partition have in common, in one version. A template finds the
    records in such a frame and makes the reply, without decoding."""

    __slots__ = ("_end", "_head", "_is_flexible", "_middle", "_prefix", "_reply_size", "_tail", "version")

    def __init__(self, head: bytes, prefix: bytes, version: int, request: ProduceRequest) -> None:
        """`request` is a decoded request of this version."""
        self._head = head
        self._prefix = prefix
        self._end = PREFIX_POSITION + len(prefix)
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self.version = version
        reply = encode(ProduceResponse(responses=[successful_response(request, MARKS)]), version)
        place = reply.index(PLACES(*MARKS))
        self._middle = (b"\0" if self._is_flexible else b"") + reply[:place]
        self._tail = reply[place + 24 :]
        self._reply_size = REPLY_HEAD(4 + len(self._middle) + 24 + len(self._tail))

    def records_in(self, frame: memoryview) -> memoryview | None:
        """Return the records in a frame that has the common parts.

        Returns None for any other frame, for records of a transaction, and for control records.
        """
        position = self._end
        if bytes(frame[:4]) != self._head or bytes(frame[PREFIX_POSITION:position]) != self._prefix:
            return None
        end = len(frame)
        if self._is_flexible:
            end -= 3
            if end - position < HEADER_SIZE or bytes(frame[end:]) != TAGS:
                return None
            size, position = compact_size(frame, position)
        else:
            if end - position < HEADER_SIZE:
                return None
            size = SIZE(frame, position)[0]
            position += 4
        if size < HEADER_SIZE or end - position != size:
            return None
        is_plain = not frame[position + TRANSACTIONAL_POSITION] & (TRANSACTIONAL_BIT | CONTROL_BIT)
        return frame[position:end] if is_plain else None

    def reply(self, frame: memoryview, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Make the reply to `frame`, whose records were appended, as a whole frame."""
        places = PLACES(base_offset, log_append_time_ms, log_start_offset)
        return b"".join((self._reply_size, frame[CORRELATION_ID], self._middle, places, self._tail))


def successful_response(request: ProduceRequest, places: tuple[int, int, int]) -> TopicProduceResponse:
    """The part of a response for the one partition of a successful request. `places` has base offset, append time and
    log start offset."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    base_offset, log_append_time_ms, log_start_offset = places
    answer = PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])


def produce_template_of(frame: memoryview, version: int, request: ProduceRequest) -> ProduceTemplate | None:
    """Make the template of requests like this one, whose frame and decoded form are given; None if such requests cannot
    be recognised without decoding. With a template, the records of `request` are set to None."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    records = data.records
    if (
        version < FIRST_VERSION
        or not isinstance(records, memoryview)
        or not HEADER_SIZE <= len(records) < RECORDS_SIZE_MAX
    ):
        return None
    size = len(records)
    field = uvarint(size + 1) if version >= FIRST_FLEXIBLE_VERSION else REPLY_HEAD(size)
    end = len(frame) - size - len(field) - (3 if version >= FIRST_FLEXIBLE_VERSION else 0)
    if end < PREFIX_POSITION or bytes(frame[end : end + len(field)]) != field:
        return None  # Such as the tags of a later release.
    data.records = None
    prefix = bytes(frame[PREFIX_POSITION:end])
    repeated = ProduceTemplate(bytes(frame[:4]), prefix, version, request)
    found = repeated.records_in(frame)
    return repeated if found is not None and found == records else None


def compact_size(frame: memoryview, position: int) -> tuple[int, int]:
    """Parse a compact size of at most three bytes. Returns the size and the position after it. The size is -1 if it has
    more bytes."""
    first = frame[position]
    if first < 0x80:
        return first - 1, position + 1
    second = frame[position + 1]
    if second < 0x80:
        return (first & 0x7F | second << 7) - 1, position + 2
    third = frame[position + 2]
    if third < 0x80:
        return (first & 0x7F | (second & 0x7F) << 7 | third << 14) - 1, position + 3
    return -1, position
