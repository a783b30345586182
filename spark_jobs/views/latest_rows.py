"""The last row of each key in some rows."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

DIGEST_SIZE: Final = 16
"""Keys with more bytes are remembered by a digest."""


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


def first_met(rows: pa.RecordBatch, met: set[bytes]) -> pa.RecordBatch:
    """The rows whose keys were not met before; after that they are. A key takes about 100 bytes in the set."""
    import numpy as np

    is_new = np.zeros(rows.num_rows, np.bool_)
    for row, key in enumerate(rows.column("key").to_pylist()):
        digest = key if len(key) <= DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE + 1).digest()
        if digest not in met:
            met.add(digest)
            is_new[row] = True
    return rows.filter(is_new)
