"""Rows by key: the changes of a round, applied to the files of a table by writing those anew that have one of the keys.

    changes   the last record of each key of the round that fits; one without a value deletes the row of its key
    files     of each the bounds of its keys are compared, then its keys are read; a file with a changed key is replaced

The cost of a round is that of the files it replaces, so a table whose keys change everywhere is written anew by each
round: fewer and larger rounds (`--interval`) cost less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction

from moldau.lake.columns import PLACE
from moldau.lake.data_files import file_schema
from moldau.lake.stored_rows import stored_rows

KEY: Final = "key"
IS_DELETION: Final = "is_deletion"
"""The name of a column beside those of the table, while the changes of a round are collected."""
FILE_SIZE_MAX: Final = 64 << 20
"""Bytes of rows in memory of a file of a table by key: a file that is replaced is held in memory."""


class Changes:
    """The last change of each key, from the records of a round in any order."""

    def __init__(self) -> None:
        self._kept: list[pa.Table] = []
        self._settled_size = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows, each with a key."""
        self._add(rows, is_deletion=False)

    def add_deletions(self, records: pa.RecordBatch) -> None:
        """Take records with a key and without a value."""
        self._add(records.select([KEY, *PLACE]), is_deletion=True)

    def rows_and_keys(self) -> tuple[pa.Table, pa.Array]:
        """The last row of each key that was not deleted after it, and all keys, the deleted ones too."""
        if not self._kept:
            return pa.table({}), pa.array([], pa.binary())
        last = self._settled()
        rows = last.filter(pc.invert(last[IS_DELETION])).drop_columns([IS_DELETION])
        return rows, last[KEY].combine_chunks()

    def _add(self, rows: pa.RecordBatch, *, is_deletion: bool) -> None:
        if not rows.num_rows:
            return
        marks = pa.array(np.full(rows.num_rows, is_deletion))
        self._kept.append(pa.Table.from_batches([rows]).append_column(IS_DELETION, marks))
        if sum(each.nbytes for each in self._kept) > 2 * max(self._settled_size, FILE_SIZE_MAX // 4):
            self._settled_size = self._settled().nbytes

    def _settled(self) -> pa.Table:
        """The last change of each key; of those in several partitions that with the latest timestamp, then the highest
        partition.
        """
        joined = pa.concat_tables(self._kept, promote_options="permissive").combine_chunks()
        self._kept = [joined.take(_last_of_keys(joined))]
        return self._kept[0]


def _last_of_keys(rows: pa.Table) -> pa.Array:
    """The positions of the rows that count, ascending."""
    columns = rows.select([KEY, *PLACE]).append_column("at", pa.array(np.arange(len(rows))))
    in_partition = columns.sort_by([(KEY, "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    last = in_partition.take(_ends_of_runs(in_partition, [KEY, "partition"]))
    ordered = last.sort_by([(KEY, "ascending"), ("timestamp", "ascending"), ("partition", "ascending")])
    return pa.array(np.sort(np.asarray(ordered.take(_ends_of_runs(ordered, [KEY]))["at"])))


def _ends_of_runs(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """The position of the last row of each run of equal values."""
    if not len(rows):
        return pa.array([], pa.int64())
    is_end = np.zeros(len(rows), np.bool_)
    is_end[-1] = True
    for name in names:
        values = rows[name].combine_chunks()
        is_end[:-1] |= np.asarray(pc.not_equal(values.slice(0, len(values) - 1), values.slice(1)))
    return pa.array(np.flatnonzero(is_end))


def replaced_files(table: Table, keys: pa.Array) -> Iterator[tuple[DataFile, FileScanTask]]:
    """The files of a table that have one of the keys. Raises OSError."""
    if not len(keys):
        return
    key_id = table.schema().find_field(KEY).field_id
    least, most = pc.min_max(keys).values()
    projected = table.schema().select(KEY)
    for task in table.scan().plan_files():
        if not _may_have(task.file, key_id, least.as_py(), most.as_py()):
            continue
        scan = ArrowScan(table.metadata, table.io, projected, AlwaysTrue())
        if any(pc.any(_is_in(batch.column(KEY), keys)).as_py() for batch in scan.to_record_batches([task])):
            yield task.file, task


def rows_that_stay(transaction: Transaction, task: FileScanTask, keys: pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows of a file whose keys did not change, in the current schema. Raises OSError."""
    for batch in stored_rows(transaction.table_metadata, transaction._table.io, task, file_schema(transaction)):
        yield batch.filter(pc.invert(_is_in(batch.column(KEY), keys)))


def _is_in(values: pa.Array, keys: pa.Array) -> pa.Array:
    return pc.is_in(values, value_set=keys.cast(values.type))


def _may_have(file: DataFile, key_id: int, least: bytes, most: bytes) -> bool:
    lower = (file.lower_bounds or {}).get(key_id)
    upper = (file.upper_bounds or {}).get(key_id)
    return (lower is None or lower <= most) and (upper is None or upper >= least)
