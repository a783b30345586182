"""A consumer that decodes nothing: of each batch it only reads the size and the offset of the next one.

Its cost is what the kernel copies, so that the broker is measured and not the client.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final, NamedTuple

from bench.frames import fetch_error_position, fetch_frame
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import HEADER_SIZE, parse_header

BUFFER_SIZE: Final = 1 << 20
"""The initial size of the buffer, which grows to the largest reply."""
PATIENCE_S: Final = 60.0
BEFORE_ABORTED: Final = 2 + 3 * 8
"""The size of the fields from a partition's error code to the aborted transactions: error code, high watermark, last
stable offset, log start offset.
"""
PREFERRED_SIZE: Final = 4
STORAGE_RETRY_S: Final = 0.05


class ReadResult(NamedTuple):
    """The result of reading a range of offsets."""

    size: int
    """The size of whole batches in bytes."""
    seconds: float
    cpu_s: float
    """The CPU time of this process."""
    fetches: int
    retries: int
    """The number of fetches that were answered with KAFKA_STORAGE_ERROR."""
    longest_s: float
    """The longest time from a request to the end of its reply."""


class RawReader:
    """A connection to the leader of partition 0 of a topic, with one fetch at a time, like a consumer. Raises
    `RuntimeError` for an error that is not retriable, and OSError.
    """

    def __init__(self, port: int, topic: str, size_max: int) -> None:
        self._topic = topic
        self._size_max = size_max
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(BUFFER_SIZE))

    def close(self) -> None:
        self._socket.close()

    def read(self, offset: int, end_offset: int) -> ReadResult:
        """Fetch from `offset` until `end_offset` (exclusive) is reached."""
        began, cpu_before = time.perf_counter(), time.process_time()
        size = fetches = retries = 0
        longest_s = 0.0
        while offset < end_offset:
            asked = time.perf_counter()
            reply = self._ask(fetch_frame(self._topic, offset, self._size_max))
            longest_s = max(longest_s, time.perf_counter() - asked)
            fetches += 1
            error, records = records_in(reply, self._topic)
            if error is ErrorCode.KAFKA_STORAGE_ERROR:
                retries += 1
                time.sleep(STORAGE_RETRY_S)
                continue
            if error is not ErrorCode.NONE:
                raise RuntimeError(f"offset {offset} of {self._topic} cannot be read: {error.name}")
            taken, offset = end_of_batches(records, offset)
            size += taken
        seconds = time.perf_counter() - began
        return ReadResult(size, seconds, time.process_time() - cpu_before, fetches, retries, longest_s)

    def _ask(self, frame: bytes) -> memoryview:
        """Send a request, and return the reply with its size in front."""
        self._socket.sendall(frame)
        self._receive(0, 4)
        (size,) = struct.unpack_from(">i", self._buffer)
        end = 4 + size
        if end > len(self._buffer):
            self._buffer = memoryview(bytearray(end))
        self._receive(4, end)
        return self._buffer[:end]

    def _receive(self, start: int, end: int) -> None:
        while start < end:
            count = self._socket.recv_into(self._buffer[start:end])
            if not count:
                raise ConnectionError("the broker closed the connection")
            start += count


def records_in(reply: memoryview, topic: str) -> tuple[ErrorCode, memoryview]:
    """The error code and the records of the only partition in a reply to `fetch_frame`."""
    position = fetch_error_position(topic)
    (error,) = struct.unpack_from(">h", reply, position)
    position += BEFORE_ABORTED
    aborted, position = _uvarint(reply, position)
    assert aborted <= 1, "a fetch of isolation level 0 is told no aborted transactions"
    size, position = _uvarint(reply, position + PREFERRED_SIZE)
    return ErrorCode(error), reply[position : position + max(0, size - 1)]


def end_of_batches(records: memoryview, offset: int) -> tuple[int, int]:
    """The size of the whole batches, and the offset after them; `offset` if there are none."""
    position = 0
    while position + HEADER_SIZE <= len(records):
        header = parse_header(records, position)
        if position + header.size > len(records):
            break
        position, offset = position + header.size, header.next_offset
    return position, offset


def _uvarint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
