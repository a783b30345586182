"""Reads the rows of a data file as they are stored, in the current schema of their table, so that rows can move to
another file unchanged.

pyiceberg's scan (0.12.0) returns an empty list or map in place of a null one if its elements are structs. So rows that
are stored again are not read through it. A column whose type is that of the table is taken as Parquet returns it. If
the schema has changed since, the column is made anew, with the nulls of each level. Fields are found by their ids, a
field that the file does not have is null, and numbers are widened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from moldau.lake.columns import PLACE

BATCH_ROWS: Final = 65_536
BATCH_SIZE: Final = 8 << 20
"""The approximate size of a batch in bytes, uncompressed. A batch of long values thus has fewer rows, and a reader gets
the first one as early as that of short values."""
FIELD_ID: Final = b"PARQUET:field_id"


def stored_rows(
    metadata: TableMetadata,
    io: FileIO,
    task: FileScanTask,
    target: pa.Schema,
    names: Collection[str] | None = None,
    batch_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file as record batches of the schema `target`, whose fields have ids. Rows that another
    program has deleted are left out.

    `names`: the columns to read (None: all). `partition` and `offset` are added to them if the file has deleted rows.
    `batch_rows`: the most rows of a batch; None: as many as have about `BATCH_SIZE` bytes. Raises OSError.
    """
    is_left = undeleted_filter(metadata, io, task)
    if names is not None and task.delete_files:
        names = {*names, *PLACE[:2]}
    with io.new_input(task.file.file_path).open() as stream:
        for rows in rows_of_file(pq.ParquetFile(stream), target, names, batch_rows):
            yield rows if is_left is None else rows.filter(is_left(rows))


def rows_of_file(
    file: pq.ParquetFile, target: pa.Schema, names: Collection[str] | None = None, batch_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of an open file, also those that another program has deleted. The arguments are those of
    `stored_rows`. Raises OSError."""
    if names is not None:
        target = pa.schema([field for field in target if field.name in names])
    ids = {_id_of(field) for field in target}
    stored = [field.name for field in file.schema_arrow if _id_of(field) in ids]
    size = rows_of_batch(file.metadata, stored) if batch_rows is None else batch_rows
    for batch in file.iter_batches(size, columns=None if names is None else stored):
        columns = _columns(batch.schema, batch.columns, target, len(batch))
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def rows_of_batch(metadata: pq.FileMetaData, names: Collection[str]) -> int:
    """The number of rows of a Parquet file to read as one batch, so that the columns `names` have about `BATCH_SIZE`
    bytes uncompressed. Estimated from the first row group; between 1 and `BATCH_ROWS`."""
    if not metadata.num_rows:
        return BATCH_ROWS
    group = metadata.row_group(0)
    columns = [group.column(each) for each in range(group.num_columns)]
    size: int = sum(each.total_uncompressed_size for each in columns if each.path_in_schema.split(".")[0] in names)
    return max(1, min(BATCH_ROWS, BATCH_SIZE * int(group.num_rows) // max(size, 1)))


def in_order(tasks: Iterable[FileScanTask], schema: Schema) -> list[FileScanTask]:
    """Sort the files of a table by their lowest offset."""
    offset = schema.find_field("offset").field_id
    return sorted(tasks, key=lambda task: int.from_bytes((task.file.lower_bounds or {}).get(offset, b""), "little"))


def undeleted_filter(
    metadata: TableMetadata, io: FileIO, task: FileScanTask
) -> Callable[[pa.RecordBatch], pa.Array] | None:
    """Return a function that takes rows of a file and returns a mask of those that are not deleted, by `partition` and
    `offset`. Return None if another program has deleted no row of the file. Raises OSError."""
    if not task.delete_files:
        return None
    places = metadata.schema().select(*PLACE[:2])  # without nested types, which the scan would change
    left = ArrowScan(metadata, io, places, AlwaysTrue()).to_table([task])
    return lambda rows: _is_among(rows, left)


def _is_among(rows: pa.RecordBatch, left: pa.Table) -> pa.Array:
    """For each row, whether it is among the rows `left`, by its partition and offset."""
    found = pa.nulls(len(rows), pa.bool_()).fill_null(False)
    for partition in pc.unique(left[PLACE[0]]):
        offsets = left.filter(pc.equal(left[PLACE[0]], partition))[PLACE[1]]
        is_here = pc.equal(rows.column(PLACE[0]), partition)
        found = pc.or_(found, pc.and_(is_here, pc.is_in(rows.column(PLACE[1]), value_set=offsets.combine_chunks())))
    return found


def _columns(
    source: Sequence[pa.Field], arrays: Sequence[pa.Array], target: Sequence[pa.Field], count: int
) -> list[pa.Array]:
    """Return the columns of the target schema, or the fields of one of its structs. A column that the file does not
    have is null."""
    by_id = {_id_of(field): array for field, array in zip(source, arrays, strict=True)}
    found = [by_id.get(_id_of(field)) for field in target]
    return [
        pa.nulls(count, field.type) if array is None else cast_to_type(array, field.type)
        for field, array in zip(target, found, strict=True)
    ]


def _id_of(field: pa.Field) -> bytes | str:
    """The id of a field; its name if the file was written without ids."""
    found: bytes | str = (field.metadata or {}).get(FIELD_ID, field.name)
    return found


def cast_to_type(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to another type that can hold its values. Nulls are kept at every level."""
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
        keys, items = cast_to_type(array.keys, target.key_type), cast_to_type(array.items, target.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    if pa.types.is_large_list(target):
        values = cast_to_type(array.values, target.value_type)
        return pa.LargeListArray.from_arrays(array.offsets.cast(pa.int64()), values, type=target, mask=mask)
    if pa.types.is_list(target):
        values = cast_to_type(array.values, target.value_type)
        return pa.ListArray.from_arrays(array.offsets.cast(pa.int32()), values, type=target, mask=mask)
    return array.cast(target)
