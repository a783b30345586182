"""Chooses the columns of a Parquet file that get statistics: all but floats.

The least and the greatest value of a column do not count NaN. Engines that rely on them miss a row that is NaN
(findings/parquet_nan_depends_on_row_groups.sh), or read it as another number
(findings/datafusion_reads_nan_as_another_number.sh).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

FLOATS: Final = ("FLOAT", "DOUBLE")
"""Parquet's names of the types of floats."""


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """The paths of the columns that are not floats, for `write_statistics` of a ParquetWriter."""
    from pyarrow.parquet import ParquetWriter, read_metadata  # type: ignore[import-untyped]

    empty = pa.BufferOutputStream()
    ParquetWriter(empty, schema).close()
    columns = read_metadata(pa.BufferReader(empty.getvalue())).schema
    return [each.path for each in columns if each.physical_type not in FLOATS]
