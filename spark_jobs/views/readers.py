"""The readers of the tables, by the name of the table.

Spark makes a reader in a process that has imported nothing of this package, so only the wanted one is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import DataSourceReader

from moldau.spark_jobs.options.read_options import ReadOptions
from moldau.spark_jobs.refusals import Refused
from moldau.spark_jobs.views.schemas import schema_of

INTERNAL: Final = ("offsets", "groups", "transactions")
"""The tables that read internal topics."""


def view_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceReader:
    """The reader of a table other than `records`. Raises `Refused`."""
    table = options.table
    if options.pushes_down:
        raise Refused(f"pushdown: table={table} takes over no predicates")
    if table == "batches":
        from moldau.spark_jobs.views.batches import BatchesReader

        return BatchesReader(options, columns)
    if table == "latest":
        from moldau.spark_jobs.views.latest import LatestViewReader

        return LatestViewReader(options, columns)
    schema = schema_of(options)
    if table in INTERNAL:
        from moldau.spark_jobs.views.internal_records import InternalReader, rows_of

        return InternalReader(options, columns, schema, rows_of(table))
    if options.snapshot is not None:
        raise Refused(f"snapshot: table={table} shows what is there now")
    from moldau.spark_jobs.views.places import PlacesReader

    return PlacesReader(options, schema, columns)
