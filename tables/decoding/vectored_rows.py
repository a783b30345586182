"""Decodes a chunk with numpy: each field of all its records at once. It is used if the compiled decoder is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import TimestampType
from moldau.tables.decoding.decoded_rows import DecodedRows, headers_column
from moldau.tables.decoding.record_fields import Integers, RecordFields, read_fields, record_positions
from moldau.tables.decoding.segment_batches import Chunk
from moldau.tables.decoding.times import microseconds_of


def decode_vectored(chunk: Chunk, start_offset: int, end_offset: int, columns: Set[str]) -> DecodedRows:
    """Decode the records of a chunk with offsets in [start_offset, end_offset) into these columns. Raises
    `MalformedMessage`."""
    decoded = _VectoredChunk(chunk, start_offset, end_offset)
    return DecodedRows(
        offsets=pa.array(decoded.chosen(decoded.offsets)),
        timestamps=decoded.timestamps() if "timestamp" in columns else None,
        keys=decoded.keys() if "key" in columns else None,
        values=decoded.values() if "value" in columns else None,
        headers=decoded.headers() if "headers" in columns else None,
        timestamp_types=decoded.timestamp_types(),
    )


class _VectoredChunk:
    """The fields of all records of a chunk, and the selection of the records with wanted offsets."""

    def __init__(self, chunk: Chunk, start_offset: int, end_offset: int) -> None:
        self._headers = chunk.headers
        pieces = [memoryview(chunk.buffers[each.buffer])[each.start : each.end] for each in chunk.bodies]
        self._data = b"".join(pieces)
        positions: list[int] = []
        counts: list[int] = []
        start = 0
        for header, piece in zip(self._headers, pieces, strict=True):
            record_positions(self._data, start, start + len(piece), header.records_count, positions)
            counts.append(header.records_count)
            start += len(piece)
        self._fields: RecordFields = read_fields(
            np.frombuffer(self._data, np.uint8), np.array(positions, np.int64), start
        )
        self._batch = np.repeat(np.arange(len(counts)), counts)
        delta = self._fields.offset_delta
        if bool(np.any((delta < 0) | (delta > self._of_batch([each.last_offset_delta for each in self._headers])))):
            raise MalformedMessage("a record's offset is not one of its batch")
        self.offsets = self._of_batch([header.base_offset for header in self._headers]) + delta
        is_wanted = (self.offsets >= start_offset) & (self.offsets < end_offset)
        self._rows: Integers | None = None if bool(is_wanted.all()) else np.flatnonzero(is_wanted)

    def chosen(self, column: Integers) -> Integers:
        return column if self._rows is None else column[self._rows]

    def keys(self) -> pa.Array:
        return self._binary(self._fields.key_position, self._fields.key_size)

    def values(self) -> pa.Array:
        return self._binary(self._fields.value_position, self._fields.value_size)

    def timestamps(self) -> pa.Array:
        """The column of timestamps (microseconds): those of the records, or that of the batch if it has log append
        time."""
        is_append_time = [each.timestamp_type is TimestampType.LOG_APPEND_TIME for each in self._headers]
        has_append_time = np.array(is_append_time, np.bool_)[self._batch]
        delta = self.chosen(np.where(has_append_time, 0, self._fields.timestamp_delta))
        bases = [
            each.max_timestamp if appended else each.base_timestamp
            for each, appended in zip(self._headers, is_append_time, strict=True)
        ]
        base = self.chosen(self._of_batch(bases))
        return pa.array(microseconds_of(base + delta))  # The sum wraps, as in Java.

    def headers(self) -> pa.Array:
        """The column of headers. Raises `MalformedMessage`."""
        has_headers: NDArray[np.bool_] = self._fields.has_headers
        if self._rows is not None:
            has_headers = has_headers[self._rows]
        positions = self.chosen(self._fields.headers_position)

        def found() -> Iterator[tuple[bytes, int]]:
            for position in positions[has_headers].tolist():
                yield self._data, position

        return headers_column(has_headers, found())

    def timestamp_types(self) -> list[tuple[int, int]]:
        rows = self._batch if self._rows is None else self._batch[self._rows]
        counts = np.bincount(rows, minlength=len(self._headers)).tolist()
        return [(int(each.timestamp_type), count) for each, count in zip(self._headers, counts, strict=True)]

    def _of_batch(self, values: Sequence[int]) -> Integers:
        """Return an array with one value for each record: the value of the record's batch."""
        spread: Integers = np.array(values, np.int64)[self._batch]
        return spread

    def _binary(self, position: Integers, size: Integers) -> pa.Array:
        return binary_column(self._data, self.chosen(position), self.chosen(size))


def binary_column(data: bytes, position: Integers, size: Integers) -> pa.Array:
    """Make a binary column of fields of a buffer. `position`: the ascending positions of the fields; `size`: their
    sizes, -1 for null.

    The buffer is treated as an array of alternating gaps and fields, so that Arrow can take the fields in one pass over
    memory.
    """
    count = len(position)
    if not count:
        return pa.array([], pa.binary())
    cuts = np.empty(2 * count, np.int32)
    cuts[0::2] = position
    cuts[1::2] = position + np.maximum(size, 0)
    interleaved = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), pa.py_buffer(data)])
    fields = interleaved.take(pa.array(np.arange(0, 2 * count, 2)))
    is_present: NDArray[np.bool_] = size >= 0
    if bool(is_present.all()):
        return fields
    validity = pa.py_buffer(np.packbits(is_present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, *fields.buffers()[1:]])
