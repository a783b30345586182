"""The decoded records of a chunk as columns, which the compiled decoder and the numpy decoder both produce, and the
decoding of record headers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_reader import decode_headers

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


@dataclass(slots=True)
class DecodedRows:
    """The wanted records of a chunk as columns. A column that was not requested is None."""

    offsets: pa.Array
    timestamps: pa.Array | None
    """The timestamps in microseconds, as int64."""
    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    timestamp_types: Sequence[tuple[int, int]]
    """The timestamp types as runs of rows: (type, number of rows)."""

    @property
    def count(self) -> int:
        return len(self.offsets)


def headers_column(has_headers: NDArray[np.bool_], places: Iterable[tuple[bytes, int]]) -> pa.Array:
    """Decode the headers of rows into a column. `has_headers` says which rows have headers. `places` has, for each of
    these rows, the buffer with the record and the position of its count of headers. Raises `MalformedMessage`."""
    count = len(has_headers)
    if not bool(has_headers.any()):
        return pa.nulls(count, COLUMN_TYPES["headers"])
    names: list[str] = []
    values: list[bytes | None] = []
    counts = np.zeros(count, np.int32)
    for row, (data, position) in zip(np.flatnonzero(has_headers).tolist(), places, strict=True):
        try:
            headers, _ = decode_headers(data, position)
        except IndexError:
            raise MalformedMessage("a record's headers go past its end") from None
        counts[row] = len(headers)
        names += [name for name, _ in headers]
        values += [value for _, value in headers]
    arrays = [pa.array(names, pa.string()), pa.array(values, pa.binary())]
    entries = pa.StructArray.from_arrays(arrays, fields=list(HEADER_TYPE))
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), entries, type=COLUMN_TYPES["headers"], mask=pa.array(~has_headers))
