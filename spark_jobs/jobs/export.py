"""The job `export`: exports the records of a topic as Parquet or as a Delta table, each offset once. A run continues
where the last one ended.

driver    Fixes the offsets of the run, from the ends in the ledger up to the high watermarks.
tasks     Each task decodes its slices, and writes one Parquet file into the staging directory of the run. It returns
          the name of the file to Spark, and no records.
driver    Commits the named files, by one document in the ledger (`export_ledger.py`) or by one commit of the Delta
          table (`delta_table.py`).

If Spark runs a task twice, the task writes two files, and only one of them is named.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from moldau.spark_jobs.data_source import MoldauDataSource
from moldau.spark_jobs.jobs.delta_table import DeltaLedger
from moldau.spark_jobs.jobs.export_ledger import ExportedFile, ExportLedger, ExportRun
from moldau.spark_jobs.jobs.job_options import committed_by_default, isolation_of, offsets_as_json, pinned_options
from moldau.spark_jobs.jobs.progress import JobProgress, progress_shown
from moldau.spark_jobs.views.records import SegmentReader
from moldau.spark_jobs.views.schemas import HEADERS, RECORDS
from moldau.tables.options.offset_choices import EARLIEST
from moldau.tables.options.read_options import ReadOptions, parse_options
from moldau.tables.refusals import Refused

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

    from moldau.tables.origins.port import Task
    from moldau.tables.planning.bounds import OffsetRange

STAGING_OPTION: Final = "exportto"
"""The option by which the tasks get the compression and the directory of their files."""
FILE_ROW_COLUMNS: Final = StructType(
    [StructField("name", StringType()), StructField("rows", LongType()), StructField("size", LongType())]
)
"""The columns of the rows that the tasks return, one row for each file."""
DICTIONARY_COLUMNS: Final = ["topic", "partition", "timestampType"]
"""Columns with few different values, which Parquet keeps in dictionaries."""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """The arguments of an export. `options` are the options of the data source, for one topic. The job reads committed
    records by default."""

    options: dict[str, str]
    topic: str
    output: str
    compression: str = "zstd"
    format: str = "parquet"
    """The format of the output: `parquet` or `delta`."""
    is_anew: bool = False
    """Whether this run replaces what earlier runs have exported, and begins with the offsets of a first run."""

    @property
    def columns(self) -> list[str]:
        fields = [*RECORDS.fields, HEADERS] if parse_options(self.options).include_headers else RECORDS.fields
        return [field.name for field in fields]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The offsets that a run will export, found before Spark is started."""

    job: ExportJob
    cluster_id: str | None
    topic_id: str | None
    ranges: tuple[OffsetRange, ...]
    tasks_count: int
    size: int
    is_continued: bool
    """Whether the ledger has earlier runs of this export."""

    @property
    def offsets_count(self) -> int:
        """The upper bound on the number of exported records."""
        return sum(each.end_offset - each.start_offset for each in self.ranges)


def plan_export(job: ExportJob) -> ExportPlan:
    """Plan a run of the export: look at the files and the ledger, and fix the offsets to export. Raises `Refused`,
    `TopicRecreated` if the ledger is of a topic that was deleted, `IsolationDiffers`, `CorruptCheckpoint` and OSError.
    """
    from moldau.storage.files.local_files import LocalFiles
    from moldau.tables.planning.partition_view import topic_ids_of
    from moldau.tables.planning.planner import Planner

    ledger = ledger_of(job)
    if ledger.is_foreign:
        raise Refused(f"{job.output} has files that no export has written")
    options = committed_by_default(job.options)
    planner = Planner(LocalFiles(), parse_options(options))
    views = planner.views()
    topic_id = topic_ids_of(views).get(job.topic)
    isolation = isolation_of(options)
    ends = ledger.ends(job.topic, planner.cluster_id, topic_id, isolation=isolation, is_anew=job.is_anew)
    if ends:
        if any(name.lower().startswith("starting") for name in options):
            raise Refused(f"{job.output} has been exported to before: the next run begins where the last one ended")
        starts = {view.key: ends.get(view.key[1], EARLIEST) for view in views}
        options = options | {"startingOffsets": offsets_as_json(starts)}
        planner = Planner(LocalFiles(), parse_options(options))
    planned = planner.plan()
    pinned = pinned_options(
        options,
        {each.key: each.start_offset for each in planned.ranges},
        {each.key: each.end_offset for each in planned.ranges},
    )
    return ExportPlan(
        replace(job, options=pinned),
        planned.cluster_id,
        topic_id,
        planned.ranges,
        len(planned.tasks),
        planned.size,
        bool(ends),
    )


def ledger_of(job: ExportJob) -> ExportLedger | DeltaLedger:
    """The ledger of an export's output. Raises `Refused` if the format is `delta` and deltalake is not installed."""
    import pyarrow as pa

    from moldau.tables.decoding.decoded_rows import COLUMN_TYPES

    if job.format == "delta":
        return DeltaLedger(job.output, pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in job.columns]))
    return ExportLedger(job.output)


def run_export(session: SparkSession, plan: ExportPlan, progress: JobProgress) -> ExportRun:
    """Run an export on Spark. Returns the run that was committed. An export that fails commits nothing."""
    job, ledger = plan.job, ledger_of(plan.job)
    number = ledger.begin(job.topic, plan.cluster_id)
    session.dataSource.register(ExportSource)
    source = session.read.format(ExportSource.name()).options(**job.options)
    try:
        with progress_shown(session, progress):
            told = source.option(STAGING_OPTION, f"{job.compression}:{ledger.staging(number)}").load().collect()
    except BaseException:
        shutil.rmtree(ledger.staging(number), ignore_errors=True)
        raise
    files = tuple(ExportedFile(*row) for row in told)
    ranges = {each.key[1]: (each.start_offset, each.end_offset) for each in plan.ranges}
    isolation = isolation_of(job.options)
    run = ExportRun(number, job.topic, plan.cluster_id, ranges, files, plan.topic_id, job.is_anew, isolation)
    ledger.commit(run)
    return run


class ExportSource(MoldauDataSource):
    """The data source whose tasks write the records that they read into files, and return the names of the files."""

    @classmethod
    def name(cls) -> str:
        return "moldau_export"

    def schema(self) -> StructType:
        return FILE_ROW_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        given = dict(self.options.items())
        compression, _, staging = given.pop(STAGING_OPTION).partition(":")
        return ExportWriter(parse_options(given), staging, compression)


class ExportWriter(SegmentReader):
    """Writes the records of each task of Spark as one Parquet file."""

    def __init__(self, options: ReadOptions, staging: str, compression: str) -> None:
        fields = [*RECORDS.fields, HEADERS] if options.include_headers else RECORDS.fields
        super().__init__(options, [field.name for field in fields])
        self._staging = staging
        self._compression = compression

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        task: Task = partition.value or ()
        written = self._write(task)
        if written is not None:
            arrays = [pa.array([value]) for value in written]
            yield pa.RecordBatch.from_arrays(arrays, names=[field.name for field in FILE_ROW_COLUMNS.fields])

    def _write(self, task: Task) -> ExportedFile | None:
        """Write the records of a task into a file. Returns None if the task has no records. Raises OSError, and what
        `batches` raises.
        """
        if not task:
            return None
        first = task[0]
        name = f"{first.topic}-{first.partition:05}-{first.start_offset:020}-{uuid4().hex}.parquet"
        batches = self.batches(task, self._columns)
        return write_file(self._staging, name, batches, compression=self._compression, repeated=DICTIONARY_COLUMNS)


ROW_GROUP_SIZE: Final = 32 << 20
"""The bytes of rows in memory from which on they become one row group of a Parquet file."""


def write_file(
    directory: str,
    name: str,
    batches: Iterator[pa.RecordBatch],
    *,
    compression: str = "zstd",
    repeated: Sequence[str] = (),
) -> ExportedFile | None:
    """Write batches of rows into a Parquet file. Returns None, without a file, if they have no rows. `repeated`:
    columns with few different values, which Parquet keeps in dictionaries. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path, writer, count = f"{directory}/{name}", None, 0
    try:
        for group in row_groups(batches):
            if writer is None:
                writer = pq.ParquetWriter(
                    path, group[0].schema, compression=compression, use_dictionary=list(repeated) or False
                )
            writer.write_table(pa.Table.from_batches(group), row_group_size=1 << 30)
            count += sum(each.num_rows for each in group)
    finally:
        if writer is not None:
            writer.close()
    return ExportedFile(name, count, _synced_size(path)) if writer is not None else None


def row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield lists of batches. Each list has about the size of one row group."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _synced_size(path: str) -> int:
    """Sync a file to the disk. Returns its size in bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
