"""Decodes a chunk by the compiled `moldau.protocol.record_spans`, which writes into the buffers of the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.protocol.record_batch import TIMESTAMP_TYPE_BIT
from moldau.protocol.record_spans import KEYS, NO_HEADERS, VALUES, RecordSpans
from moldau.tables.decoding.decoded_rows import DecodedRows, headers_column
from moldau.tables.decoding.segment_batches import Chunk

Choose = Callable[[NDArray[np.int64], NDArray[np.int64], pa.Array], NDArray[np.uint8]]
"""A function that chooses records by their offsets, timestamps (microseconds) and keys. Returns a byte for each record,
which is 0 for a record that is left out."""
_FIELDS: Final = {"key": KEYS, "value": VALUES}


def decode_spans(
    chunk: Chunk, start_offset: int, end_offset: int, columns: Set[str], choose: Choose | None = None
) -> DecodedRows:
    """Decode the records of a chunk with offsets in [start_offset, end_offset) into these columns.

    `choose` selects the records of the result before their values are copied. It needs the columns `key` and
    `timestamp`. Raises `MalformedMessage`.
    """
    capacity = sum(max(0, min(each.header.records_count, each.end - each.start)) for each in chunk.bodies)
    offsets = np.empty(capacity, np.int64)
    timestamps = np.empty(capacity, np.int64) if "timestamp" in columns else None
    headers = np.empty(capacity, np.int64) if "headers" in columns else None
    fields = sum(flag for name, flag in _FIELDS.items() if name in columns)
    outputs = [None if each is None else each.data for each in (timestamps, headers)]
    spans = RecordSpans(capacity, start_offset, end_offset, fields, offsets.data, *outputs)
    types: list[tuple[int, int]] = []
    for header, buffer, start, end in chunk.bodies:
        before = spans.count
        has_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
        spans.read(
            chunk.buffers[buffer],
            start,
            end,
            header.records_count,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp if has_append_time else header.base_timestamp,
            has_append_time,
        )
        types.append((int(has_append_time), spans.count - before))
    if choose is not None:
        assert timestamps is not None
        is_kept = choose(offsets[: spans.count], timestamps[: spans.count], _column(spans, KEYS))
        spans.keep(is_kept.data)
        types = _kept_types(types, is_kept)
    count = spans.count
    return DecodedRows(
        offsets=pa.array(offsets[:count]),
        timestamps=None if timestamps is None else pa.array(timestamps[:count]),
        keys=_column(spans, KEYS) if fields & KEYS else None,
        values=_column(spans, VALUES) if fields & VALUES else None,
        headers=None if headers is None else _headers(headers[:count], chunk, types),
        timestamp_types=types,
    )


def _kept_types(types: Sequence[tuple[int, int]], is_kept: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Count the kept records of each run of a timestamp type."""
    kept, start = [], 0
    for of_run, count in types:
        kept.append((of_run, int(np.count_nonzero(is_kept[start : start + count]))))
        start += count
    return kept


def _column(spans: RecordSpans, name: int) -> pa.Array:
    size, nulls_count = spans.needs(name)
    ends, data = pa.allocate_buffer(4 * (spans.count + 1)), pa.allocate_buffer(size)
    validity = pa.allocate_buffer((spans.count + 7) // 8) if nulls_count else None
    spans.copy(name, ends, data, validity)
    return pa.Array.from_buffers(pa.binary(), spans.count, [validity, ends, data], nulls_count)


def _headers(positions: NDArray[np.int64], chunk: Chunk, types: Sequence[tuple[int, int]]) -> pa.Array:
    def found() -> Iterator[tuple[bytes, int]]:
        row = 0
        for (_, buffer, start, end), (_, count) in zip(chunk.bodies, types, strict=True):
            mine = positions[row : row + count]
            present = mine[mine != NO_HEADERS].tolist()
            records = bytes(memoryview(chunk.buffers[buffer])[start:end]) if present else b""
            for position in present:
                yield records, position
            row += count

    return headers_column(positions != NO_HEADERS, found())
