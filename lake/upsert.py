"""Rows by key: applies the changes of a round to a table, by rewriting the files that have a row of a changed key.

    changes   For each key of the round, its last record that fits. A record without a value deletes the row of its key.
    files     The bounds of a file's keys are compared with the changed keys, then its keys are read. A file with a
              changed key is replaced.
    older     If the table has the key from a later record of another partition, the change is left out.

A round costs as much as the files that it replaces. If the keys change everywhere in the table, each round rewrites the
whole table, so fewer and larger rounds (`--interval`) cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from moldau.lake.columns import PLACE
from moldau.lake.keys import NO_KEYS, ChangedKeys, key_identities, key_names
from moldau.lake.stored_rows import stored_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

IS_DELETION: Final = "$is_deletion"
"""The name of a further column, besides those of the table, while the changes of a round are collected."""
FILE_SIZE_MAX: Final = 64 << 20
"""The bytes of rows in memory for one file of a table by key, because a file that is replaced is held in memory."""
KEYED_ROWS: Final = 1 << 20
"""The number of rows of a file whose keys are compared with all changed keys at once."""
GROUPS_PER_ROW_MAX: Final = 8
"""The most pairs of a key and a partition for each row, up to which an array has a place for each pair. If there are
more, only the pairs that have a row are numbered."""


class KeyChanges:
    """Collects the last change of each key, from the records of a round in any order."""

    def __init__(self) -> None:
        self._kept: list[pa.RecordBatch] = []
        self._size = self._settled_size = 0

    def add(self, rows: pa.RecordBatch, deletes: pa.Array) -> None:
        """Add rows, each with a key. `deletes`: for each row, whether it deletes the row of its key."""
        if not rows.num_rows:
            return
        self._kept.append(rows.append_column(IS_DELETION, deletes))
        self._size += self._kept[-1].nbytes
        if self._size > 2 * max(self._settled_size, FILE_SIZE_MAX // 4):
            self._settle()

    def rows_and_keys(self, target: pa.Schema | None = None) -> tuple[pa.Table, ChangedKeys]:
        """Return the last row of each key that is not deleted, and the keys of all changes, also of deletions.
        `target`: the columns of the table, whose types the keys get; None keeps the types of the changes."""
        if not self._kept:
            return pa.table({}), NO_KEYS
        changed = self._keys_and_places()
        places = KeyedRows.of(changed)
        in_partitions = _last_in_partitions(places)
        chosen = _last_of_keys(places, in_partitions)
        self._keep(chosen)
        others = changed.take(np.setdiff1d(in_partitions, chosen)) if len(chosen) < len(in_partitions) else None
        return rows_and_keys_of(join_batches(self._kept), lambda: others, target)

    def last_in_partitions(self) -> pa.Table:
        """Return the last change of each key in each partition, with the column `IS_DELETION`."""
        if not self._kept:
            return pa.table({})
        self._settle()
        return join_batches(self._kept)

    def _settle(self) -> None:
        """Drop all changes except the last one of each key in each partition. Which partition's change counts is
        decided at the end."""
        self._keep(_last_in_partitions(KeyedRows.of(self._keys_and_places())))
        self._size = self._settled_size = sum(each.nbytes for each in self._kept)

    def _keys_and_places(self) -> pa.Table:
        return join_batches([each.select([*key_names(each.schema.names), *PLACE]) for each in self._kept])

    def _keep(self, chosen: NDArray[np.int64]) -> None:
        """Keep only the changes at these indexes."""
        is_chosen, start = np.zeros(sum(map(len, self._kept)), np.bool_), 0
        is_chosen[chosen] = True
        before, self._kept = self._kept, []
        for batch in before:
            stays, start = is_chosen[start : start + len(batch)], start + len(batch)
            if stays.any():
                self._kept.append(batch if stays.all() else batch.filter(pa.array(stays)))


def rows_and_keys_of(
    last: pa.Table, others: Callable[[], pa.Table | None], target: pa.Schema | None
) -> tuple[pa.Table, ChangedKeys]:
    """Return the rows of the last changes, without deletions, and the keys of all last changes. `last`: the last change
    of each key, with the column `IS_DELETION`. `others` returns the changes that are the last of their key in their
    partition, but not over all partitions. `target`: see `KeyChanges.rows_and_keys`.
    """

    def in_table(rows: pa.Table | None) -> pa.Table | None:
        return rows if rows is None or target is None else key_columns(rows, target)

    rows = last.filter(pc.invert(last[IS_DELETION])) if pc.any(last[IS_DELETION]).as_py() else last
    return rows.drop_columns([IS_DELETION]), ChangedKeys.of(in_table(last), lambda: in_table(others()))


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Join batches in the widest types of their columns. Keys are compared after that, because a key has another
    identity if its schema has a further field.
    """
    tables = [pa.Table.from_batches([each]) for each in batches]
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


class KeyedRows(NamedTuple):
    """For each row, its key as a number, and its partition, offset and timestamp."""

    keys: NDArray[np.int64]
    partitions: NDArray[np.int64]
    offsets: NDArray[np.int64]
    times_us: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pa.Table) -> KeyedRows:
        columns = (rows[name].combine_chunks().to_numpy().astype(np.int64, copy=False) for name in PLACE)
        return cls(_numbered(key_identities(rows)), *columns)


def _last_in_partitions(rows: KeyedRows) -> NDArray[np.int64]:
    """The indexes of the last row of each key in each partition."""
    in_partition = rows.keys * (1 + rows.partitions.max()) + rows.partitions
    if in_partition.max() > GROUPS_PER_ROW_MAX * len(in_partition):
        in_partition = _numbered(pa.array(in_partition))
    return np.flatnonzero(_is_greatest(in_partition, rows.offsets))


def _last_of_keys(rows: KeyedRows, in_partitions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indexes of the last change of each key, ascending. `in_partitions`: those of the last changes in each
    partition. If a key is in several partitions, the change with the latest timestamp counts, and of equal timestamps
    the one in the highest partition."""
    last = in_partitions
    for values in (rows.times_us, rows.partitions):
        last = last[_is_greatest(rows.keys[last], values[last])]
    return last


def _numbered(values: pa.Array) -> NDArray[np.int64]:
    """Number values from 0 on; equal values have equal numbers."""
    return np.asarray(values.dictionary_encode().indices).astype(np.int64)


def _is_greatest(groups: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each value, whether it is the greatest of its group."""
    greatest = np.full(groups.max() + 1, np.iinfo(np.int64).min)
    np.maximum.at(greatest, groups, values)
    is_greatest: NDArray[np.bool_] = values == greatest[groups]
    return is_greatest


def key_columns(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """Return the key columns, partitions, offsets and timestamps of rows, in the types of the table with the columns
    `target`."""
    fields = [target.field(name) for name in (*key_names(target.names), *PLACE)]
    columns = [
        rows[each.name].cast(each.type) if each.name in rows.column_names else pa.nulls(len(rows), each.type)
        for each in fields
    ]
    return pa.table(columns, pa.schema(fields))


class MatchedKeys(NamedTuple):
    """The result of searching a table for changed keys."""

    files: Sequence[FileScanTask]
    """The files that have a row that a change replaces or deletes."""
    older: pa.Array
    """The identities of the keys whose change is older than the row of the table, so that the change has no effect."""


def match_changed_keys(
    metadata: TableMetadata, io: FileIO, tasks: Iterable[FileScanTask], target: pa.Schema, keys: ChangedKeys
) -> MatchedKeys:
    """Search the files of a table, whose columns are `target`, for changed keys. Raises OSError."""
    files, older = [], [NO_KEYS.key_identities]
    names = (*key_names(target.names), "partition", "timestamp")
    for task in tasks if len(keys) else ():
        if not keys.may_be_in(task.file, metadata.schema()):
            continue
        is_replaced = False
        for rows in stored_rows(metadata, io, task, target, names, KEYED_ROWS):
            found = rows.filter(keys.has(rows))
            are_older = keys.are_older(found)
            older.append(key_identities(found.filter(are_older)))
            is_replaced = is_replaced or not pc.all(are_older).as_py()
        if is_replaced:
            files.append(task)
    return MatchedKeys(files, pa.concat_arrays(older))


def without_older(
    rows: pa.Table, keys: ChangedKeys, older: pa.Array, target: pa.Schema
) -> tuple[pa.Table, ChangedKeys]:
    """Return changed rows and keys without the keys in `older`, whose row in the table is later than the change."""
    if not len(older):
        return rows, keys
    return rows.filter(pc.invert(pc.is_in(key_identities(key_columns(rows, target)), value_set=older))), keys.without(
        older
    )


def rows_that_stay(
    metadata: TableMetadata,
    io: FileIO,
    task: FileScanTask,
    target: pa.Schema,
    keys: ChangedKeys,
    names: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file whose keys are not changed, in the columns of `target`. `names`: the columns to read
    (None: all). Raises OSError."""
    is_changed, start = _are_changed(metadata, io, task, target, keys), 0
    for batch in stored_rows(metadata, io, task, target, names):
        stays, start = ~is_changed[start : start + len(batch)], start + len(batch)
        if stays.all():  # also if nothing is known of the rows, because none is changed
            yield batch
        elif stays.any():
            first, last = np.flatnonzero(stays)[[0, -1]]
            within, stays = batch.slice(first, last + 1 - first), stays[first : last + 1]
            yield within if stays.all() else within.filter(pa.array(stays))


def _are_changed(
    metadata: TableMetadata, io: FileIO, task: FileScanTask, target: pa.Schema, keys: ChangedKeys
) -> NDArray[np.bool_]:
    """For each row of a file, whether its key is one of `keys`; empty if the bounds of its columns say that none is.
    Raises OSError."""
    found = [np.zeros(0, np.bool_)]
    if len(keys) and keys.may_be_in(task.file, metadata.schema()):
        for rows in stored_rows(metadata, io, task, target, key_names(target.names), KEYED_ROWS):
            found.append(keys.has(rows).to_numpy(zero_copy_only=False))
    return np.concatenate(found)
