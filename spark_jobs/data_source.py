"""The data source `moldau` for Spark: `spark.read.format("moldau")` reads the records of topics, their batches,
segments and other contents of the files, as tables.

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

from moldau.spark_jobs.options.write_options import WriteOptions
from moldau.spark_jobs.views.records import SegmentReader, ViewReader
from moldau.spark_jobs.views.schemas import columns_of, spark_schema
from moldau.tables.options.read_options import parse_options
from moldau.tables.refusals import Refused
from moldau.tables.views.readers import table_reader
from moldau.tables.views.schemas import chosen_columns


class MoldauDataSource(DataSource):
    """The data source `moldau` for Spark (docs/spark.md): its schema, and its readers and writers."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        """The columns of the table, or only the columns that the option `columns` names. A schema given by the user may
        name fewer columns, in another order."""
        return spark_schema(chosen_columns(parse_options(self.options, "either")))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        columns = columns_of(schema, options)
        if options.table != "records":
            return ViewReader(table_reader(options, columns))
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
