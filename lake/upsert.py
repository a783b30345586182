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
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction

from moldau.lake.columns import PLACE
from moldau.lake.data_files import file_schema
from moldau.lake.keys import NO_KEYS, Keys, identities, key_names
from moldau.lake.stored_rows import stored_rows

IS_DELETION: Final = "$is_deletion"
IDENTITY: Final = "$identity"
"""The names of columns beside those of the table, while the changes of a round are collected."""
FILE_SIZE_MAX: Final = 64 << 20
"""Bytes of rows in memory of a file of a table by key: a file that is replaced is held in memory."""


class Changes:
    """The last change of each key, from the records of a round in any order."""

    def __init__(self) -> None:
        self._kept: list[pa.Table] = []
        self._settled_size = 0

    def add(self, rows: pa.RecordBatch, deletes: pa.Array) -> None:
        """Take rows, each with a key; `deletes` says of which the row of the key is deleted."""
        if not rows.num_rows:
            return
        found = pa.Table.from_batches([rows]).append_column(IS_DELETION, deletes)
        self._kept.append(found.append_column(IDENTITY, identities(rows)))
        if sum(each.nbytes for each in self._kept) > 2 * max(self._settled_size, FILE_SIZE_MAX // 4):
            self._settled_size = self._settled().nbytes

    def rows_and_keys(self) -> tuple[pa.Table, Keys]:
        """The last row of each key that was not deleted after it, and all keys, the deleted ones too."""
        if not self._kept:
            return pa.table({}), NO_KEYS
        last = self._settled()
        rows = last.filter(pc.invert(last[IS_DELETION])).drop_columns([IS_DELETION, IDENTITY])
        return rows, Keys.of(last, last[IDENTITY].combine_chunks())

    def _settled(self) -> pa.Table:
        """The last change of each key; of those in several partitions that with the latest timestamp, then the highest
        partition.
        """
        joined = pa.concat_tables(self._kept, promote_options="permissive").combine_chunks()
        self._kept = [joined.take(_last_of_keys(joined))]
        return self._kept[0]


def _last_of_keys(rows: pa.Table) -> pa.Array:
    """The positions of the rows that count, ascending."""
    columns = rows.select([IDENTITY, *PLACE]).append_column("at", pa.array(np.arange(len(rows))))
    in_partition = columns.sort_by([(IDENTITY, "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    last = in_partition.take(_ends_of_runs(in_partition, [IDENTITY, "partition"]))
    ordered = last.sort_by([(IDENTITY, "ascending"), ("timestamp", "ascending"), ("partition", "ascending")])
    return pa.array(np.sort(np.asarray(ordered.take(_ends_of_runs(ordered, [IDENTITY]))["at"])))


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


def replaced_files(table: Table, keys: Keys) -> Iterator[tuple[DataFile, FileScanTask]]:
    """The files of a table that have one of the keys. Raises OSError."""
    schema = table.schema()
    target = schema_to_pyarrow(schema, include_field_ids=True)
    names = key_names(target.names)
    if not len(keys) or not names:
        return
    for task in table.scan().plan_files():
        if not keys.may_be_in(task.file, schema):
            continue
        if any(pc.any(keys.has(rows)).as_py() for rows in stored_rows(table.metadata, table.io, task, target, names)):
            yield task.file, task


def rows_that_stay(transaction: Transaction, task: FileScanTask, keys: Keys) -> Iterator[pa.RecordBatch]:
    """The rows of a file whose keys did not change, in the current schema. Raises OSError."""
    for batch in stored_rows(transaction.table_metadata, transaction._table.io, task, file_schema(transaction)):
        yield batch.filter(pc.invert(keys.has(batch)))
