"""Decoding a chunk by `moldau.protocol.record_spans`: Arrow copies long keys and values out of their views."""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from librt.vecs import vec
from mypy_extensions import i64
from numpy.typing import NDArray

from moldau.protocol.record_batch import TIMESTAMP_TYPE_BIT
from moldau.protocol.record_spans import HEADERS, KEYS, NULL, TIMESTAMPS, VALUES, RecordSpans, read_spans
from moldau.tables.decoding.decoded_rows import DecodedRows, headers_column
from moldau.tables.decoding.segment_batches import Chunk

_COLUMNS = {"key": KEYS, "value": VALUES, "timestamp": TIMESTAMPS, "headers": HEADERS}


def decode_spans(chunk: Chunk, start_offset: int, end_offset: int, columns: Set[str]) -> DecodedRows:
    """The records with offsets in [start, end). Raises `MalformedMessage`."""
    wanted = sum(flag for name, flag in _COLUMNS.items() if name in columns)
    capacity = sum(max(0, min(each.header.records_count, each.end - each.start)) for each in chunk.bodies)
    spans = RecordSpans(capacity, wanted, start_offset, end_offset)
    types: list[tuple[int, int]] = []
    for header, buffer, start, end in chunk.bodies:
        before = spans.count
        read_spans(spans, chunk.buffers[buffer], buffer, start, end, header)
        types.append((1 if header.attributes & TIMESTAMP_TYPE_BIT else 0, spans.count - before))
    count = spans.count
    return DecodedRows(
        offsets=_numbers(spans.offsets, count),
        timestamps=_numbers(spans.timestamps, count) if wanted & TIMESTAMPS else None,
        keys=_fields(spans.keys, count, chunk) if wanted & KEYS else None,
        values=_fields(spans.values, count, chunk) if wanted & VALUES else None,
        headers=_headers(spans, count, chunk) if wanted & HEADERS else None,
        timestamp_types=types,
    )


def _numbers(numbers: vec[i64], count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])


def _fields(views: vec[i64], count: int, chunk: Chunk) -> pa.Array:
    if not count:
        return pa.array([], pa.binary())
    validity = None
    buffer = pa.py_buffer(views)
    halves = np.frombuffer(buffer, np.int64)[: 2 * count]
    is_null = halves[0::2] == NULL
    nulls_count = int(np.count_nonzero(is_null))
    if nulls_count:
        halves = halves.copy()
        halves.reshape(-1, 2)[is_null] = 0
        validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
        buffer = pa.py_buffer(halves)
    data = [pa.py_buffer(each) for each in chunk.buffers]
    return pa.Array.from_buffers(pa.binary_view(), count, [validity, buffer, *data], nulls_count).cast(pa.binary())


def _headers(spans: RecordSpans, count: int, chunk: Chunk) -> pa.Array:
    places: NDArray[np.int64] = np.frombuffer(pa.py_buffer(spans.headers), np.int64)[:count]
    has_headers = places != NULL

    def found() -> Iterator[tuple[bytes, int]]:
        for place in places[has_headers].tolist():
            yield chunk.buffers[place >> 32], place & 0xFFFFFFFF

    return headers_column(has_headers, found())
