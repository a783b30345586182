"""The columns of each table with Spark's types, and Arrow batches from rows with a schema of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.tables.options.read_options import ReadOptions
from moldau.tables.refusals import Refused
from moldau.tables.views import rows as table_rows
from moldau.tables.views import schemas
from moldau.tables.views.schemas import STRUCTS, Column, every_column

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def spark_type(kind: str) -> DataType:
    """Spark's type for a column of this kind (`moldau.tables.views.schemas`)."""
    fields = STRUCTS.get(kind)
    return _TYPES[kind] if fields is None else ArrayType(spark_schema(fields))


def spark_schema(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(name, spark_type(kind)) for name, kind in columns])


RECORDS: Final = spark_schema(schemas.RECORDS)
"""The columns of the table `records`, which are those of Spark's Kafka connector. includeHeaders adds `headers`."""
HEADERS: Final = StructField("headers", spark_type("headers"))


def columns_of(schema: StructType, options: ReadOptions) -> list[str]:
    """The names of the columns in a schema that the user gives. Raises `Refused` for a column or a type that the table
    does not have."""
    known = {field.name: field for field in spark_schema(every_column(options)).fields}
    for field in schema.fields:
        if field.name not in known:
            raise Refused(f"schema: there is no column {field.name}; the columns are {', '.join(known)}")
        if field != known[field.name]:
            expected = known[field.name].simpleString()
            raise Refused(f"schema: {field.simpleString()} is not {expected}, which may be null")
    return [field.name for field in schema.fields]


def row_batches(rows: Iterable[table_rows.Row], schema: StructType, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches, with some of the columns of a schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return table_rows.row_batches(rows, to_arrow_schema(schema, timezone="UTC"), columns)
