"""Which reader makes the rows of which table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import DataSourceReader

from spark_jobs.options.read_options import ReadOptions
from spark_jobs.refusals import Refused


def view_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceReader:
    """The reader of a table other than `records`."""
    raise Refused(f"table={options.table} is not part of this version")
