"""The rows of a chunk, as both decoders produce them: the compiled one and that of numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

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
    """The wanted records of a chunk; a column that was not asked for is None."""

    offsets: pa.Array
    timestamps: pa.Array | None
    """The timestamps in microseconds, as int64."""
    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    timestamp_types: Sequence[tuple[int, int]]
    """The timestamp types as runs of (type, count of rows)."""

    @property
    def count(self) -> int:
        return len(self.offsets)
