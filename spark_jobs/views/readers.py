"""The readers of the tables, by the name of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql.datasource import DataSourceReader

from spark_jobs.options.read_options import ReadOptions
from spark_jobs.refusals import Refused
from spark_jobs.views.batches import BatchesReader
from spark_jobs.views.consumer_offsets import group_row, offset_row
from spark_jobs.views.internal_records import InternalReader
from spark_jobs.views.latest import LatestViewReader
from spark_jobs.views.places import PlacesReader
from spark_jobs.views.rows import Row
from spark_jobs.views.schemas import schema_of
from spark_jobs.views.transactional_ids import transaction_row

_ROWS: dict[str, Callable[[bytes, bytes], Row | None]] = {
    "offsets": offset_row,
    "groups": group_row,
    "transactions": transaction_row,
}


def view_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceReader:
    """The reader of a table other than `records`. Raises `Refused`."""
    table = options.table
    if options.pushes_down:
        raise Refused(f"pushdown: table={table} takes over no predicates")
    if table == "batches":
        return BatchesReader(options, columns)
    if table == "latest":
        return LatestViewReader(options, columns)
    schema = schema_of(options)
    if table in _ROWS:
        return InternalReader(options, columns, schema, _ROWS[table])
    if options.snapshot is not None:
        raise Refused(f"snapshot: table={table} shows what is there now")
    return PlacesReader(options, schema, columns)
