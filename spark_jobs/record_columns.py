"""Records as Arrow columns, the columns of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from protocol.primitives import MalformedMessage
from protocol.record_batch import TimestampType
from protocol.record_reader import decode_headers
from spark_jobs.planning import Slice
from spark_jobs.record_fields import Integers, RecordFields, read_fields, record_positions
from spark_jobs.segment_batches import Chunk, chunks_of
from storage.files.port import FileSystem

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1
"""The range of milliseconds that fits into 64 bits as microseconds."""


def record_batches(fs: FileSystem, wanted: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a slice with these columns, in the order of their offsets.

    Raises `MalformedMessage` (it names the file) and OSError.
    """
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
    for chunk in chunks_of(fs, wanted):
        try:
            records = DecodedChunk(chunk, wanted)
            if records.count:
                yield pa.RecordBatch.from_arrays([records.column(name) for name in columns], schema=schema)
        except MalformedMessage as malformed:
            where = f"{wanted.path}, offsets {chunk.headers[0].base_offset} to {chunk.headers[-1].last_offset}"
            raise MalformedMessage(f"{where}: {malformed}") from None


class DecodedChunk:
    """The selected records of a chunk; a column is computed when it is first used."""

    def __init__(self, chunk: Chunk, wanted: Slice) -> None:
        self._wanted = wanted
        self._headers = chunk.headers
        self._data = b"".join(chunk.bodies)
        positions: list[int] = []
        counts: list[int] = []
        start = 0
        for header, body in zip(chunk.headers, chunk.bodies, strict=True):
            record_positions(self._data, start, start + len(body), header.records_count, positions)
            counts.append(header.records_count)
            start += len(body)
        self._fields = read_fields(np.frombuffer(self._data, np.uint8), np.array(positions, np.int64), start)
        self._batch = np.repeat(np.arange(len(counts)), counts)
        delta = self._fields.offset_delta
        if bool(np.any((delta < 0) | (delta > self._of_batch([each.last_offset_delta for each in chunk.headers])))):
            raise MalformedMessage("a record's offset is not one of its batch")
        self.offsets = self._of_batch([header.base_offset for header in chunk.headers]) + delta
        self._rows = self._rows_wanted()
        self.count = len(self.offsets) if self._rows is None else len(self._rows)

    def column(self, name: str) -> pa.Array:
        """One of `COLUMN_TYPES`."""
        fields = self._fields
        if name == "key":
            return self._binary(fields.key_position, fields.key_size)
        if name == "value":
            return self._binary(fields.value_position, fields.value_size)
        if name == "topic":
            return pa.repeat(pa.scalar(self._wanted.topic, pa.string()), self.count)
        if name == "partition":
            return pa.array(np.full(self.count, self._wanted.partition, np.int32))
        if name == "offset":
            return pa.array(self._chosen(self.offsets))
        if name == "timestamp":
            return self._timestamps()
        if name == "timestampType":
            return pa.array(
                self._chosen(self._of_batch([each.timestamp_type for each in self._headers])).astype(np.int32)
            )
        assert name == "headers", name
        return self._record_headers(fields)

    def _rows_wanted(self) -> Integers | None:
        """The mask of the selected records, None where all are selected."""
        first, last = self._headers[0].base_offset, self._headers[-1].last_offset
        if first >= self._wanted.start_offset and last < self._wanted.end_offset:
            return None
        offsets = self.offsets
        return np.flatnonzero((offsets >= self._wanted.start_offset) & (offsets < self._wanted.end_offset))

    def _of_batch(self, values: Sequence[int]) -> Integers:
        """A value of each batch, repeated for its records."""
        spread: Integers = np.array(values, np.int64)[self._batch]
        return spread

    def _chosen(self, column: Integers) -> Integers:
        return column if self._rows is None else column[self._rows]

    def _binary(self, position: Integers, size: Integers) -> pa.Array:
        return binary_column(self._data, self._chosen(position), self._chosen(size))

    def _timestamps(self) -> pa.Array:
        """The timestamps in ms: of the record, or of its batch where that has log append time."""
        created = self._of_batch([each.base_timestamp for each in self._headers]) + self._fields.timestamp_delta
        append_time = TimestampType.LOG_APPEND_TIME
        if any(each.timestamp_type is append_time for each in self._headers):
            appended = self._of_batch([each.max_timestamp for each in self._headers])
            is_append_time = self._of_batch([each.timestamp_type for each in self._headers]) == append_time
            created = np.where(is_append_time, appended, created)
        chosen = self._chosen(created)
        if chosen.size and not -TIMESTAMP_MS_MAX <= int(chosen.min()) <= int(chosen.max()) <= TIMESTAMP_MS_MAX:
            raise MalformedMessage("a timestamp is out of range for Spark, which counts microseconds in 64 bits")
        return pa.array(chosen * 1000).view(COLUMN_TYPES["timestamp"])

    def _record_headers(self, fields: RecordFields) -> pa.Array:
        """The headers column; null for a record without headers, as in the connector."""
        has_headers = fields.has_headers if self._rows is None else fields.has_headers[self._rows]
        if not bool(has_headers.any()):
            return pa.nulls(self.count, COLUMN_TYPES["headers"])
        names: list[str] = []
        values: list[bytes | None] = []
        counts = np.zeros(self.count, np.int32)
        positions = self._chosen(fields.headers_position)
        for row in np.flatnonzero(has_headers).tolist():
            try:
                headers, _ = decode_headers(self._data, int(positions[row]))
            except IndexError:
                raise MalformedMessage("a record's headers go past its end") from None
            counts[row] = len(headers)
            names += [name for name, _ in headers]
            values += [value for _, value in headers]
        entries = pa.StructArray.from_arrays(
            [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(HEADER_TYPE)
        )
        ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(ends), entries, type=COLUMN_TYPES["headers"], mask=pa.array(~has_headers)
        )


def binary_column(data: bytes, position: Integers, size: Integers) -> pa.Array:
    """Fields of these sizes at ascending positions of a buffer; a size of -1 is null.

    The buffer is seen as an array of which every second element is a field and the others lie between two fields: to
    take the fields out of it is one loop over memory in Arrow.
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
