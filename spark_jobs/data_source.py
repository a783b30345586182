"""`spark.read.format("moldau")`: the records of topics, their batches, segments and other contents of the files, as
tables.

Spark imports this module whenever a session looks up a data source, so numpy and pyarrow are imported only by a read.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from moldau.spark_jobs.options.read_options import ReadOptions, parse_options
from moldau.spark_jobs.options.write_options import WriteOptions
from moldau.spark_jobs.refusals import Refused
from moldau.spark_jobs.views.records import FilteringReader, SegmentReader
from moldau.spark_jobs.views.schemas import HEADERS, RECORDS, schema_of


class MoldauDataSource(DataSource):
    """The data source `moldau` (docs/spark.md): its schema, and its readers and writers."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        """The columns of the table, or those that the option `columns` names; a schema given by the user may name
        fewer, in another order.
        """
        return whole_schema(parse_options(self.options, "either"))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        columns = columns_of(schema, options)
        if options.table != "records":
            from moldau.spark_jobs.views.readers import view_reader

            return view_reader(options, columns)
        if options.pushes_down:
            return FilteringReader(options, columns)
        return SegmentReader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from moldau.spark_jobs.streams.reader import TopicStreamReader

        options = parse_options(self.options, "stream")
        return TopicStreamReader(options, columns_of(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark_jobs.writing.writers import BatchTopicWriter

        return BatchTopicWriter(self._write_options(schema, overwrite, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from moldau.spark_jobs.writing.writers import StreamTopicWriter

        return StreamTopicWriter(self._write_options(schema, overwrite, is_stream=True))

    def _write_options(self, schema: StructType, overwrite: bool, *, is_stream: bool) -> WriteOptions:
        from moldau.spark_jobs.options.write_options import parse_write_options
        from moldau.spark_jobs.writing.row_records import check_schema

        if overwrite:
            raise Refused("mode: records are only appended to a topic")
        options = parse_write_options(self.options, is_stream=is_stream)
        check_schema(schema, options.topic)
        return options


def whole_schema(options: ReadOptions) -> StructType:
    """The columns that are read where the user gives no schema. Raises `Refused`."""
    if not options.columns:
        return schema_of(options)
    known = {field.name.lower(): field for field in every_column(options).fields}
    for name in options.columns:
        if name.lower() not in known:
            names = ", ".join(field.name for field in known.values())
            raise Refused(f"columns: there is no column {name}; the columns are {names}")
    return StructType([known[name.lower()] for name in options.columns])


def every_column(options: ReadOptions) -> StructType:
    return StructType([*RECORDS.fields, HEADERS]) if options.table == "records" else schema_of(options)


def columns_of(schema: StructType, options: ReadOptions) -> list[str]:
    """The columns that a schema names. Raises `Refused` for a column or a type that the table does not have."""
    known = {field.name: field for field in every_column(options).fields}
    for field in schema.fields:
        if field.name not in known:
            raise Refused(f"schema: there is no column {field.name}; the columns are {', '.join(known)}")
        if field != known[field.name]:
            expected = known[field.name].simpleString()
            raise Refused(f"schema: {field.simpleString()} is not {expected}, which may be null")
    return [field.name for field in schema.fields]
