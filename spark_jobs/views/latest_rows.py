"""The last row of each key in some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


def last_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The last row of each key, in order; rows without a key are left out."""
    import numpy as np

    coded = batch.column("key").dictionary_encode()
    rows = np.arange(batch.num_rows)
    has_key = np.asarray(coded.is_valid())
    last = np.zeros(len(coded.dictionary), np.int64)
    codes = np.asarray(coded.indices.fill_null(0))
    np.maximum.at(last, codes[has_key], rows[has_key])
    return batch.take(np.sort(last))
