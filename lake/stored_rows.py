"""The rows of a data file as they are stored, in the current schema of their table: for rows that only move to another
file.

pyiceberg's scan gives an empty list or map in place of a null one if its elements are structs (0.12.0), so no row goes
through it on its way back to storage. A column whose type is that of the table is taken as Parquet gives it. If the
schema has changed since, the column is put together anew with the nulls of each level: fields are found by their ids,
a field that the file does not have is null, and numbers become wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from moldau.lake.columns import PLACE

FIELD_ID: Final = b"PARQUET:field_id"


def stored_rows(table: Table, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, without those that another program has deleted, in batches of at most a row group. Raises
    OSError.
    """
    target = schema_to_pyarrow(schema, include_field_ids=True)
    left = _undeleted(table, task) if task.delete_files else None
    with table.io.new_input(task.file.file_path).open() as stream:
        for batch in pq.ParquetFile(stream).iter_batches():
            rows = pa.RecordBatch.from_arrays(_columns(batch.schema, batch.columns, target, len(batch)), schema=target)
            yield rows if left is None else rows.filter(_is_among(rows, left))


def _undeleted(table: Table, task: FileScanTask) -> pa.Table:
    """Partition and offset of the rows of a file that were not deleted: columns without nested types."""
    place = table.schema().select(*PLACE[:2])
    return ArrowScan(table.metadata, table.io, place, AlwaysTrue()).to_table([task])


def _is_among(rows: pa.RecordBatch, left: pa.Table) -> pa.Array:
    """Whether each row is one of those that are left. A row is known by its partition and offset."""
    found = pa.nulls(len(rows), pa.bool_()).fill_null(False)
    for partition in pc.unique(left[PLACE[0]]):
        offsets = left.filter(pc.equal(left[PLACE[0]], partition))[PLACE[1]]
        is_here = pc.equal(rows.column(PLACE[0]), partition)
        found = pc.or_(found, pc.and_(is_here, pc.is_in(rows.column(PLACE[1]), value_set=offsets.combine_chunks())))
    return found


def _columns(
    source: Sequence[pa.Field], arrays: Sequence[pa.Array], target: Sequence[pa.Field], count: int
) -> list[pa.Array]:
    """The columns, or the fields of a struct, that the target has. Those that the file does not have are null."""
    by_id = {_id_of(field): array for field, array in zip(source, arrays, strict=True)}
    found = [by_id.get(_id_of(field)) for field in target]
    return [
        pa.nulls(count, field.type) if array is None else fitted(array, field.type)
        for field, array in zip(target, found, strict=True)
    ]


def _id_of(field: pa.Field) -> bytes | str:
    """The id of a field; its name if the file was written without ids."""
    found: bytes | str = (field.metadata or {}).get(FIELD_ID, field.name)
    return found


def fitted(array: pa.Array, target: pa.DataType) -> pa.Array:
    """An array in another type that holds its values; null where the array is, at every level."""
    if array.type.equals(target, check_metadata=True):
        return array
    if array.offset or pa.types.is_nested(target):
        array = pa.concat_arrays([array])  # without an offset into its buffers
    mask: Any = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        source = [array.type.field(each) for each in range(array.type.num_fields)]
        children = [array.field(each) for each in range(array.type.num_fields)]
        columns = _columns(source, children, [target.field(each) for each in range(target.num_fields)], len(array))
        return pa.StructArray.from_arrays(columns, fields=list(target), mask=mask)
    if pa.types.is_map(target):
        keys, items = fitted(array.keys, target.key_type), fitted(array.items, target.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    if pa.types.is_large_list(target):
        values = fitted(array.values, target.value_type)
        return pa.LargeListArray.from_arrays(array.offsets.cast(pa.int64()), values, type=target, mask=mask)
    if pa.types.is_list(target):
        values = fitted(array.values, target.value_type)
        return pa.ListArray.from_arrays(array.offsets.cast(pa.int32()), values, type=target, mask=mask)
    return array.cast(target)
