"""Rows by key: the changes of a round, applied to the files of a table by writing those anew that have one of the keys.

    changes   the last record of each key of the round that fits; one without a value deletes the row of its key
    files     of each the bounds of its keys are compared, then its keys are read; a file with a changed key is replaced
    older     a change is left out if the table has the key by a later record of another partition

The cost of a round is that of the files it replaces, so a table whose keys change everywhere is written anew by each
round: fewer and larger rounds (`--interval`) cost less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from moldau.lake.columns import PLACE
from moldau.lake.keys import NO_KEYS, Keys, identities, key_names
from moldau.lake.stored_rows import stored_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

IS_DELETION: Final = "$is_deletion"
"""The name of a column beside those of the table, while the changes of a round are collected."""
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
        self._kept.append(pa.Table.from_batches([rows]).append_column(IS_DELETION, deletes))
        if sum(each.nbytes for each in self._kept) > 2 * max(self._settled_size, FILE_SIZE_MAX // 4):
            self._settled_size = self._settled().nbytes

    def rows_and_keys(self, target: pa.Schema | None = None) -> tuple[pa.Table, Keys]:
        """The last row of each key that was not deleted after it, and all keys, the deleted ones too. The keys are of
        the types that they have in a table with the columns `target`, or in the changes.
        """
        if not self._kept:
            return pa.table({}), NO_KEYS
        last = self._settled()
        rows = last.filter(pc.invert(last[IS_DELETION])).drop_columns([IS_DELETION])
        return rows, Keys.of(last if target is None else keyed(last, target))

    def _settled(self) -> pa.Table:
        """The last change of each key; of those in several partitions that with the latest timestamp, then the highest
        partition.
        """
        # Only now all keys are of one type, the widest: a key has another identity if a schema has a field more.
        joined = pa.concat_tables(self._kept, promote_options="permissive").combine_chunks()
        last = _last_of_keys(joined)
        self._kept = [joined if len(last) == len(joined) else joined.take(pa.array(last))]
        return self._kept[0]


def _last_of_keys(rows: pa.Table) -> NDArray[np.int64]:
    """The positions of the rows that count, ascending."""
    keys = np.asarray(identities(rows).dictionary_encode().indices)
    partitions, offsets, times_us = (
        rows[name].combine_chunks().to_numpy() for name in ("partition", "offset", "timestamp")
    )
    in_partition = np.lexsort((offsets, partitions, keys))
    last = in_partition[_ends_of_runs(keys[in_partition], partitions[in_partition])]
    ordered = last[np.lexsort((partitions[last], times_us[last], keys[last]))]
    return np.sort(ordered[_ends_of_runs(keys[ordered])])


def _ends_of_runs(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row is the last of a run of equal ones."""
    is_end = np.ones(len(columns[0]), np.bool_)
    is_end[:-1] = np.logical_or.reduce([each[1:] != each[:-1] for each in columns])
    return is_end


def keyed(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """The keys and the places of rows, in the types of a table."""
    fields = [target.field(name) for name in (*key_names(target.names), *PLACE)]
    columns = [
        rows[each.name].cast(each.type) if each.name in rows.column_names else pa.nulls(len(rows), each.type)
        for each in fields
    ]
    return pa.table(columns, pa.schema(fields))


class StoredKeys(NamedTuple):
    """What a table has of the keys of changes."""

    files: Sequence[FileScanTask]
    """Those with a row that a change replaces or deletes."""
    older: pa.Array
    """The identities of the keys whose change is older than the row: it changes nothing."""


def stored_keys(
    metadata: TableMetadata, io: FileIO, tasks: Iterable[FileScanTask], target: pa.Schema, keys: Keys
) -> StoredKeys:
    """Find keys in files of a table, whose columns are `target`. Raises OSError."""
    files, older = [], [NO_KEYS.identities]
    names = (*key_names(target.names), "partition", "timestamp")
    for task in tasks if len(keys) else ():
        if not keys.may_be_in(task.file, metadata.schema()):
            continue
        is_replaced = False
        for rows in stored_rows(metadata, io, task, target, names):
            found = rows.filter(keys.has(rows))
            are_older = keys.are_older(found)
            older.append(identities(found.filter(are_older)))
            is_replaced = is_replaced or not pc.all(are_older).as_py()
        if is_replaced:
            files.append(task)
    return StoredKeys(files, pa.concat_arrays(older))


def without_older(rows: pa.Table, keys: Keys, older: pa.Array, target: pa.Schema) -> tuple[pa.Table, Keys]:
    """Changed rows and keys without those whose change is older than the row of the table."""
    if not len(older):
        return rows, keys
    return rows.filter(pc.invert(pc.is_in(identities(keyed(rows, target)), value_set=older))), keys.without(older)


def rows_that_stay(
    metadata: TableMetadata, io: FileIO, task: FileScanTask, target: pa.Schema, keys: Keys
) -> Iterator[pa.RecordBatch]:
    """The rows of a file whose keys did not change, in the columns of `target`. Raises OSError."""
    for batch in stored_rows(metadata, io, task, target):
        yield batch.filter(pc.invert(keys.has(batch)))
