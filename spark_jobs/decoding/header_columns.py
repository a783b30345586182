"""The headers column: a list for each record that has headers, null for one without, as in the connector."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_reader import decode_headers
from moldau.spark_jobs.decoding.decoded_rows import COLUMN_TYPES, HEADER_TYPE


def headers_column(has_headers: NDArray[np.bool_], places: Iterable[tuple[bytes, int]]) -> pa.Array:
    """Decode the headers of rows. `places` holds for each row with headers its buffer and the position of the count of
    headers. Raises `MalformedMessage`.
    """
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
