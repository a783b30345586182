"""Decodes the records of a slice into Arrow record batches with the columns of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from moldau.protocol import record_spans
from moldau.protocol.primitives import MalformedMessage
from moldau.tables.decoding import segment_batches
from moldau.tables.decoding.decoded_rows import COLUMN_TYPES, DecodedRows
from moldau.tables.decoding.segment_batches import Chunk, chunks_of
from moldau.tables.decoding.span_rows import decode_spans
from moldau.tables.decoding.vectored_rows import decode_vectored
from moldau.tables.origins.port import Slice

Decode = Callable[[Chunk, int, int, Set[str]], DecodedRows]
VECTORED_CHUNK_SIZE: Final = 16 << 20
"""The bytes of a chunk for the decoder by numpy, which needs many records in a call. The compiled decoder takes only as
many as fit into the processor's caches."""


KEPT_ROWS_MAX: Final = 1 << 16
"""The most rows of a column `topic` that `repeated_text` keeps for the next batches."""


class Decoder(NamedTuple):
    """A function that decodes chunks, and the size of the chunks (bytes) for which it is fastest."""

    decode: Decode
    chunk_size: int


class TimeRange(NamedTuple):
    """Timestamps in [start, end), in microseconds."""

    start_us: int
    end_us: int


def fastest_decoder() -> Decoder:
    """Return the compiled decoder if it is available, and otherwise the decoder by numpy."""
    if str(record_spans.__file__).endswith(".py"):
        return Decoder(decode_vectored, VECTORED_CHUNK_SIZE)
    return Decoder(decode_spans, segment_batches.CHUNK_SIZE)


def record_batches(
    wanted: Slice, columns: Sequence[str], times: TimeRange | None = None, decoder: Decoder | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice as record batches with these columns, in the order of their offsets. With `times`
    only records with timestamps in this range are yielded.

    Raises `MalformedMessage` (it names the file), `DataLost` and OSError.
    """
    decode, chunk_size = decoder or fastest_decoder()
    needed = [*columns, "timestamp"] if times else columns
    times_ms_min = -(-times.start_us // 1000) if times and times.start_us > 0 else None
    for chunk in chunks_of(wanted, times_ms_min, chunk_size=chunk_size):
        rows = decode_chunk(chunk, wanted, needed, decode)
        if rows.count:
            batch = arrow_batch(rows, wanted, columns)
            if times is not None:
                batch = batch.filter(_is_in(rows, times))
            if batch.num_rows:
                yield batch


def decode_chunk(chunk: Chunk, wanted: Slice, columns: Sequence[str], decode: Decode) -> DecodedRows:
    """Decode the records of a chunk that have offsets of the slice. Raises `MalformedMessage`, which names the file and
    the offsets."""
    try:
        return decode(chunk, wanted.start_offset, wanted.end_offset, set(columns))
    except MalformedMessage as malformed:
        where = f"{wanted.path}, offsets {chunk.headers[0].base_offset} to {chunk.headers[-1].last_offset}"
        raise MalformedMessage(f"{where}: {malformed}") from None


def arrow_batch(rows: DecodedRows, wanted: Slice, columns: Sequence[str]) -> pa.RecordBatch:
    """Make an Arrow record batch with these columns from decoded rows. Each of the columns must have been decoded into
    `rows`."""
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
    return pa.RecordBatch.from_arrays([column(rows, wanted, name) for name in columns], schema=schema)


def column(rows: DecodedRows, wanted: Slice, name: str) -> pa.Array:
    """Make one column of the decoded rows. `name` is one of `COLUMN_TYPES`."""
    if name == "topic":
        if rows.count > KEPT_ROWS_MAX:
            return pa.repeat(pa.scalar(wanted.topic, pa.string()), rows.count)
        return repeated_text(wanted.topic, 1 << (rows.count - 1).bit_length())[: rows.count]
    if name == "partition":
        return pa.array(np.full(rows.count, wanted.partition, np.int32))
    if name == "timestampType":
        types, counts = zip(*rows.timestamp_types, strict=True)
        return pa.array(np.repeat(np.array(types, np.int32), counts))
    if name == "timestamp":
        assert rows.timestamps is not None
        return rows.timestamps.view(COLUMN_TYPES["timestamp"])
    return {"key": rows.keys, "value": rows.values, "offset": rows.offsets, "headers": rows.headers}[name]


@lru_cache(maxsize=2)
def repeated_text(text: str, count: int) -> pa.Array:
    """Make an array that repeats a text. The last two arrays are cached, because the batches of a read have about the
    same size."""
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _is_in(rows: DecodedRows, times: TimeRange) -> pa.Array:
    assert rows.timestamps is not None
    timestamps = np.asarray(rows.timestamps)
    is_in = np.ones(rows.count, np.bool_)
    if times.start_us > -(1 << 63):
        is_in &= timestamps >= times.start_us
    if times.end_us < 1 << 63:
        is_in &= timestamps < times.end_us
    return pa.array(is_in)
