"""The last row of each key in some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


def last_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The last row of each key, in order; rows without a key are left out."""
    import numpy as np

    coded = batch.column("key").dictionary_encode()
    if len(coded.dictionary) == batch.num_rows:  # All keys differ, and none is null: nothing is copied.
        return batch
    rows = np.arange(batch.num_rows)
    codes = np.asarray(coded.indices.fill_null(0))
    if coded.null_count:
        has_key = np.asarray(coded.is_valid())
        codes, rows = codes[has_key], rows[has_key]
    last = np.empty(len(coded.dictionary), np.int64)
    last[codes] = rows  # Of the rows of a key the last one stays.
    return batch.take(np.sort(last))
