"""The job `latest`: the last value of each key of a topic, as Parquet or as a Delta table.

tasks     Each task reads its slices, and keeps only one row of each key and partition. So most rows never leave Python.
Spark     One exchange by key chooses among these rows: in a partition the row with the highest offset. A key is in
          several partitions if their number was changed: of these the row with the latest timestamp is chosen, or the
          one in the higher partition if the timestamps are equal.
output    A directory of Parquet files, or a Delta table, with key, value, partition, offset and timestamp.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moldau.spark_jobs.data_source import MoldauDataSource
from moldau.spark_jobs.jobs.job_options import committed_by_default, offsets_as_json, pinned_options
from moldau.spark_jobs.jobs.progress import JobProgress, progress_shown
from moldau.spark_jobs.views.records import SegmentReader
from moldau.spark_jobs.views.schemas import columns_of
from moldau.tables.options.read_options import parse_options
from moldau.tables.refusals import Refused
from moldau.tables.views.latest import last_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from moldau.spark_jobs.jobs.delta_table import DeltaOutput
    from moldau.tables.origins.port import Task
    from moldau.tables.planning.bounds import OffsetRange

SCHEMA: Final = "key binary, value binary, partition int, offset bigint, timestamp timestamp"
KEPT_SIZE_MAX: Final = 64 << 20
"""The most bytes of rows that a task keeps before it emits them. A key may then be emitted more than once."""


@dataclass(frozen=True, slots=True)
class LatestJob:
    """The arguments of the job `latest`. `options` are the options of the data source. The job reads committed records
    by default."""

    options: dict[str, str]
    output: str
    keeps_tombstones: bool = False
    overwrites: bool = False
    format: str = "parquet"
    """The format of the output: `parquet` or `delta`. With `delta` each run makes a version of the table."""


@dataclass(frozen=True, slots=True)
class LatestPlan:
    """The files and offsets that the job will read, found before Spark is started."""

    job: LatestJob
    cluster_id: str | None
    ranges: tuple[OffsetRange, ...]
    tasks_count: int
    size: int

    @property
    def offsets_count(self) -> int:
        """The upper bound on the number of records that the job reads: compaction and control batches leave gaps in the
        offsets."""
        return sum(each.end_offset - each.start_offset for each in self.ranges)


def plan_latest(job: LatestJob) -> LatestPlan:
    """Plan the job `latest`: look at the files, and fix the offsets to read. Raises `Refused`, `CorruptCheckpoint` and
    OSError."""
    from moldau.storage.files.local_files import LocalFiles
    from moldau.tables.planning.planner import Planner

    if job.format == "delta":
        delta_output(job)  # It refuses now, and not when the tasks have written.
    options = committed_by_default(job.options)
    planned = Planner(LocalFiles(), parse_options(options)).plan()
    pinned = pinned_options(
        options,
        {each.key: each.start_offset for each in planned.ranges},
        {each.key: each.end_offset for each in planned.ranges},
    )
    return LatestPlan(
        replace(job, options=pinned), planned.cluster_id, planned.ranges, len(planned.tasks), planned.size
    )


def run_latest(session: SparkSession, plan: LatestPlan, progress: JobProgress) -> int:
    """Run the job `latest` on Spark. Returns the number of keys that it wrote."""
    session.dataSource.register(LatestSource)
    rows = session.read.format(LatestSource.name()).schema(SCHEMA).options(**plan.job.options).load()
    latest = latest_of(rows, keeps_tombstones=plan.job.keeps_tombstones)
    if plan.job.format == "delta":
        return write_delta(session, latest, plan, progress)
    with progress_shown(session, progress):
        latest.write.mode("overwrite" if plan.job.overwrites else "error").parquet(plan.job.output)
    return session.read.parquet(plan.job.output).count()


def write_delta(session: SparkSession, latest: DataFrame, plan: LatestPlan, progress: JobProgress) -> int:
    """Write the rows as the next version of a Delta table. Returns the number of rows. Raises `Refused` and OSError."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
    from deltalake import CommitProperties
    from pyspark.sql.pandas.types import to_arrow_schema

    from moldau.spark_jobs.jobs.delta_table import TOPIC_IDS_ENTRY
    from moldau.spark_jobs.jobs.export_ledger import ExportedFile
    from moldau.tables.planning.partition_view import topic_ids_of

    output = delta_output(plan.job)
    topics = ",".join(sorted({each.key[0] for each in plan.ranges}))
    table = output.prepare(to_arrow_schema(latest.schema, timezone="UTC"), topics, plan.cluster_id)
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # Delta has no INT96
    try:
        with progress_shown(session, progress):
            latest.write.mode("append").parquet(str(output.run_directory))
    except BaseException:
        output.discard()
        raise
    written = sorted(output.run_directory.glob("*.parquet"))
    files = [ExportedFile(each.name, pq.read_metadata(each).num_rows, each.stat().st_size) for each in written]
    topic_ids = json.dumps(topic_ids_of(each.view for each in plan.ranges))
    ends = offsets_as_json({each.key: each.end_offset for each in plan.ranges})
    described = {"moldau.ends": ends, TOPIC_IDS_ENTRY: topic_ids}
    output.commit(table, files, CommitProperties(custom_metadata=described), overwrites=True)
    return sum(each.rows for each in files)


def delta_output(job: LatestJob) -> DeltaOutput:
    """The output of the job as a Delta table. Raises `Refused` if deltalake is not installed, or the output directory
    has other files."""
    from moldau.spark_jobs.jobs.delta_table import DeltaOutput

    output = DeltaOutput(job.output)
    if output.is_foreign:
        raise Refused(f"{job.output} has files but is not a Delta table")
    return output


def latest_of(rows: DataFrame, *, keeps_tombstones: bool) -> DataFrame:
    """The last row of each key, from rows with the columns of `SCHEMA`."""
    from pyspark.sql import functions as f

    in_partition = (
        rows.repartition("key")  # After this sort both groupings below find their rows adjacent.
        .groupBy("key", "partition")
        .agg(f.max_by(f.struct("value", "offset", "timestamp"), "offset").alias("last"))
    )
    order = f.struct("last.timestamp", "partition")
    last = f.max_by(f.struct("last", "partition"), order)
    columns = ("key", "last.last.value", "last.partition", "last.last.offset", "last.last.timestamp")
    latest = in_partition.groupBy("key").agg(last.alias("last")).select(*columns)
    return latest if keeps_tombstones else latest.where("value IS NOT NULL")


class LatestSource(MoldauDataSource):
    """The data source whose tasks leave out records that a later record of the same task replaces."""

    @classmethod
    def name(cls) -> str:
        return "moldau_latest"

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        return LatestReader(options, columns_of(schema, options))


class LatestReader(SegmentReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task, except for records without a key and records that a later record of the task
        replaces."""
        task: Task = partition.value or ()
        for _, slices in by_partition(task):
            yield from latest_batches(self.batches(slices, self._columns))


def by_partition(task: Task) -> Iterator[tuple[tuple[str, int], Task]]:
    """Group adjacent slices by partition: offsets give the order of records only within a partition."""
    from itertools import groupby

    for key, slices in groupby(task, lambda each: (each.topic, each.partition)):
        yield key, tuple(slices)


def latest_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the last row of each key, from batches in the order of their offsets. To bound the memory, rows are emitted
    before the end, so that a key may come more than once."""
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    kept_size = settled_size = 0
    for batch in batches:
        kept.append(last_rows(batch))
        kept_size += kept[-1].nbytes
        if kept_size < max(KEPT_SIZE_MAX, 2 * settled_size):
            continue
        kept = [last_rows(pa.concat_batches(kept))]
        kept_size = settled_size = kept[0].nbytes
        if settled_size >= KEPT_SIZE_MAX:
            yield kept[0]
            kept, kept_size, settled_size = [], 0, 0
    if kept:
        yield last_rows(pa.concat_batches(kept))
