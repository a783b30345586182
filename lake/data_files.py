"""The data files of one attempt to commit: rows are written in bounded memory as Parquet files, each within one
partition of the table.

    <table>/data/timestamp_day=2026-11-27/<attempt>-0.parquet

The name of a file begins with the id of its attempt. A file whose attempt did not become part of the table is found by
this name and deleted by the next run (`orphans.py`). The metadata of a file have the offsets of its rows
(`offset_runs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.io.pyarrow import (
    _get_parquet_writer_kwargs,
    parquet_file_to_data_file,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata

from moldau.lake.layout import Layout, layout_of
from moldau.lake.offset_runs import RUNS, RunsBuilder
from moldau.tables.values.parquet_statistics import FLOATS, columns_with_statistics

Step: TypeAlias = Callable[[str], None]
"""A function that is called with the name of each step of a commit once the step is done. A test may end the process in
this call."""
BUFFER_SIZE: Final = 32 << 20
"""The bytes of rows in memory, over all open files, at which rows are written as row groups."""
FILE_SIZE_MAX: Final = 256 << 20
"""The bytes of rows in memory that become one file. Compressed, the file has a fraction of them."""
OPEN_MAX: Final = 24
"""The most open files. A row of a further partition closes the file that was opened first."""
METRICS: Final = "write.metadata.metrics."
"""The prefix of the properties of a table that control how its columns are described in manifests."""


@dataclass(slots=True)
class OpenFile:
    """A data file that is being written, and the rows that will become its next row group."""

    location: str
    schema: pa.Schema
    writer: pq.ParquetWriter
    stream: OutputStream
    rows: list[pa.RecordBatch] = field(default_factory=list)
    runs: RunsBuilder = field(default_factory=RunsBuilder)
    values: dict[str, object] = field(default_factory=dict)
    """The values of the partition fields of the file, other than the time. pyiceberg does not find the values of fields
    within structs (`findings/pyiceberg_added_files_lose_nested_partitions.sh`)."""
    buffered_size: int = 0
    size: int = 0

    def write_rows(self, layout: Layout) -> None:
        """Write the buffered rows as a row group, in the order of the layout. Raises OSError."""
        if self.rows:
            ordered = layout.ordered(pa.Table.from_batches(self.rows, self.schema))
            for each in ordered.to_batches():
                self.runs.add(each)
            self.writer.write_table(ordered, row_group_size=1 << 30)
        self.size += self.buffered_size
        self.rows, self.buffered_size = [], 0


class AttemptFiles:
    """Writes the rows of one attempt to commit to an Iceberg table into data files. The schema and the partitioning are
    those of the transaction's table."""

    def __init__(self, transaction: Transaction, attempt: str, step: Step, file_size_max: int = FILE_SIZE_MAX) -> None:
        """Raises what `layout_of` raises. `attempt`: the id of the attempt, with which the names of the files begin."""
        self._transaction = transaction
        self._table = transaction._table
        self._attempt = attempt
        self._step = step
        self._file_size_max = file_size_max
        self._open: dict[str, OpenFile] = {}
        self._written: list[str] = []
        self._finished: list[DataFile] = []
        self._layout = current_layout(transaction)
        self.schema: pa.Schema = file_schema(transaction)
        self.rows_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the table. Raises OSError."""
        if not batch.num_rows:
            return
        self.rows_count += batch.num_rows
        for name, rows, values in self._layout.partitioned(aligned_to_schema(batch, self.schema)):
            into = self._file(name)
            into.values = values
            into.rows.append(rows)
            into.buffered_size += rows.nbytes
        while sum(each.buffered_size for each in self._open.values()) >= BUFFER_SIZE:
            self._flush(max(self._open, key=lambda name: self._open[name].buffered_size))

    def renew_schema(self) -> None:
        """Close the open files and read the schema again, because the transaction has changed it. The next rows have
        the new schema."""
        self.close()
        self.schema = file_schema(self._transaction)
        self._layout = current_layout(self._transaction)

    def finish(self) -> list[DataFile]:
        """Close the files, and return their descriptions for a snapshot. Raises OSError."""
        self.close()
        return self._finished

    def discard(self) -> None:
        """Delete the files, because the attempt was given up. A file that cannot be deleted is an orphan, which the
        next run deletes."""
        for each in self._open.values():
            for opened in (each.writer, each.stream):
                with suppress(OSError, pa.ArrowException):  # On a full disk no file can be closed, and each can go.
                    opened.close()
        self._open.clear()
        for location in self._written:
            with suppress(OSError):
                self._table.io.delete(location)
        self._written.clear()

    def _file(self, name: str) -> OpenFile:
        if name in self._open:
            return self._open[name]
        if len(self._open) >= OPEN_MAX:
            self._close(next(iter(self._open)))
        file_name = f"{name}{self._attempt}-{len(self._written)}.parquet"
        location = self._table.location_provider().new_data_location(file_name)
        stream = self._table.io.new_output(location).create()
        self._written.append(location)
        self._step("data file begun")
        is_raw = pa.types.is_large_binary(self.schema.field("value").type) if "value" in self.schema.names else True
        settings = _get_parquet_writer_kwargs(self._table.metadata.properties)
        settings |= {"write_statistics": columns_with_statistics(self.schema)}
        writer = pq.ParquetWriter(stream, self.schema, use_dictionary=["partition"] if is_raw else True, **settings)
        self._open[name] = OpenFile(location, self.schema, writer, stream)
        return self._open[name]

    def _flush(self, name: str) -> None:
        file = self._open[name]
        file.write_rows(self._layout)
        if file.size >= self._file_size_max or self._layout.sort_fields:
            self._close(name)

    def _close(self, name: str) -> None:
        file = self._open[name]
        file.write_rows(self._layout)
        file.writer.add_key_value_metadata({RUNS: file.runs.runs.to_json()})
        file.writer.close()
        file.stream.close()
        del self._open[name]
        described = described_file(
            self._table.io, self._transaction.table_metadata, file.location, file.writer.writer.metadata
        )
        for number, each in enumerate(self._transaction.table_metadata.spec().fields):
            if each.name in file.values:
                described.partition[number] = file.values[each.name]
        self._finished.append(described)
        self._step("data file written")

    def close(self) -> None:
        """Close the open files. Raises OSError."""
        for name in list(self._open):
            self._close(name)


def described_file(io: FileIO, metadata: TableMetadata, location: str, footer: pq.FileMetaData) -> DataFile:
    """Describe a data file for a snapshot, without bounds that would hide a row of the file from readers.

    pyiceberg 0.12 joins the bounds that the row groups of a column have. Parquet writes none for a row group whose
    least or greatest value is longer than 4 KiB. So a column with such a row group gets no bounds. pyiceberg also fails
    if it has to shorten a text after the letter U+D7FF, whose successor is not a letter: texts are then described
    whole. pyiceberg warns of each float column, because it has no statistics, unless a property excludes the column.
    """
    schema = metadata.schema()
    ids = parquet_path_to_id_mapping(schema)
    floats = {
        f"{METRICS}column.{schema.find_column_name(ids[each.path])}": "none"
        for each in footer.schema
        if each.physical_type in FLOATS
    }

    def described_with(properties: dict[str, str]) -> DataFile:
        return parquet_file_to_data_file(io, metadata.model_copy(update={"properties": properties | floats}), location)

    try:
        described = described_with(metadata.properties)
    except UnicodeEncodeError:
        others = {name: value for name, value in metadata.properties.items() if not name.startswith(METRICS)}
        described = described_with(others | {f"{METRICS}default": "full"})
    for path in unbounded_columns(footer):
        for bounds in (described.lower_bounds, described.upper_bounds):
            bounds.pop(ids[path], None)
    return described


def unbounded_columns(footer: pq.FileMetaData) -> set[str]:
    """The columns of bytes and texts, by their paths, of which a row group has values and no bounds."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    return {
        each.path_in_schema
        for each in columns
        if each.physical_type == "BYTE_ARRAY"
        and each.is_stats_set
        and not each.statistics.has_min_max
        and each.statistics.null_count < each.num_values
    }


def current_layout(transaction: Transaction) -> Layout:
    metadata = transaction.table_metadata
    return layout_of(metadata.spec(), metadata.schema(), metadata.properties)


def file_schema(transaction: Transaction) -> pa.Schema:
    """The Arrow schema of the data files of a transaction's table, with field ids."""
    return schema_to_pyarrow(transaction.table_metadata.schema(), include_field_ids=True)


def aligned_to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns and types of a schema. A column that the rows do not have is null."""
    columns = [
        batch.column(each.name).cast(each.type)
        if each.name in batch.schema.names
        else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
