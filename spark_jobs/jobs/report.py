"""The job `report`: size, rate, skew over partitions, hot keys and lag of topics.

driver    Lists partitions and segments: sizes by tier, log start offsets, high watermarks.
batches   One pass over the batch headers (`table=batches`) counts records and bytes of each partition, codec and
          second. The seconds are joined into buckets when the first and the last one are known.
keys      One pass over the keys of the records. The tasks count them (`KeyCounts`), and Spark adds the counts up.
groups    The committed offsets in `__consumer_offsets`, if the places have this topic.

As in every query of the data source, one replica of each partition is read.

Keys are counted in bounded memory. A table holds a count for each key. When it is full, the keys with the smallest
counts are dropped, and `missed_max` becomes the most records that a dropped key may have had. A key that enters the
table later may have been dropped before. So it keeps the `missed_max` of that time, by which its count may be too
small. A key that entered before the first drop, and was not dropped itself, has an exact count. Hot keys are of this
kind, unless they become hot late.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from warnings import catch_warnings

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from moldau.spark_jobs.data_source import MoldauDataSource
from moldau.spark_jobs.jobs.progress import JobProgress, progress_shown
from moldau.spark_jobs.jobs.report_figures import (
    BucketFigures,
    GroupLag,
    HotKey,
    KeyFigures,
    PartitionFigures,
    Report,
    TimeBuckets,
    TopicFigures,
    buckets_between,
)
from moldau.spark_jobs.views.records import SegmentReader
from moldau.spark_jobs.views.schemas import row_batches
from moldau.tables.options.read_options import ReadOptions, parse_options
from moldau.tables.refusals import Refused
from moldau.tables.views.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from moldau.storage.checkpoints.text_checkpoint import TopicPartition
    from moldau.tables.origins.port import Task
    from moldau.tables.planning.partition_view import PartitionView

SELECTIONS: Final = ("subscribe", "assign", "subscribepattern")
OFFSET_OPTION_PREFIXES: Final = ("starting", "ending", "snapshot")
"""The prefixes of options that choose offsets. They have no meaning for committed offsets."""
EXCHANGE_TASKS: Final = "spark.sql.shuffle.partitions"
EXCHANGE_SIZE: Final = 256 << 20
"""The bytes of segments for one shuffle partition. The rows of batches and keys that are shuffled have about a
hundredth of these bytes."""
EXCHANGE_TASKS_MAX: Final = 200
KEY_COUNT_COLUMNS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("key", BinaryType()),
        StructField("count", LongType()),
        StructField("missed", LongType()),
        StructField("absent", LongType()),
    ]
)
"""The columns of the rows that the tasks return, one row for each key of a task. `missed`: the most records that the
count may lack. `absent`: the most records of a key that the task does not return. For each topic of a task a row with a
null key has the number of records without a key."""


@dataclass(frozen=True, slots=True)
class ReportJob:
    """The arguments of a report. `options` are the options of the data source."""

    options: dict[str, str]
    hot_keys: int = 10
    """The number of keys that the report names for each topic. If it is 0, the keys are not read."""
    bucket_s: int | None = None
    """The width of a time bucket in seconds; if it is None, the job chooses one."""
    since_ms: int | None = None
    until_ms: int | None = None
    """The times (ms since 1970) that the options name, which the time buckets cover; None if they name none."""


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The partitions that a report will read, found before Spark is started."""

    job: ReportJob
    cluster_id: str | None
    topics: tuple[TopicFigures, ...]
    size: int
    has_groups: bool
    remarks: tuple[str, ...]


def plan_report(job: ReportJob) -> ReportPlan:
    """Plan a report: list its partitions. Raises `Refused`, `CorruptCheckpoint`, `MalformedMessage`,
    `RemoteStorageError`, OSError."""
    from moldau.storage.files.local_files import LocalFiles
    from moldau.tables.planning.planner import Planner

    planner = Planner(LocalFiles(), parse_options(job.options | {"table": "batches"}))
    views = planner.views()
    topics: dict[str, TopicFigures] = {}
    for view in sorted(views, key=lambda each: each.key):
        topic, partition = view.key
        figures = PartitionFigures(partition, view.log_start_offset, view.high_watermark)
        add_tiers(figures, view)
        topics.setdefault(topic, TopicFigures(topic)).partitions.append(figures)
    problem = problem_of_groups(job.options)
    remarks = () if problem is None else (f"the lag of groups is left out: {problem}",)
    size = sum(view.size for view in views)
    if topics:
        job = replace(job, options=assigned_options(job.options, [view.key for view in views]))
    return ReportPlan(job, planner.cluster_id, tuple(topics.values()), size, problem is None, remarks)


def assigned_options(options: dict[str, str], keys: Iterable[TopicPartition]) -> dict[str, str]:
    """Return the options that select these partitions. The job lists the places again once Spark has started, and must
    not find a topic or a partition that was created meanwhile."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        topics.setdefault(topic, []).append(partition)
    kept = {name: value for name, value in options.items() if name.lower() not in SELECTIONS}
    return kept | {"assign": json.dumps(topics)}


def add_tiers(figures: PartitionFigures, view: PartitionView) -> None:
    """Add the number and the sizes of the segments of each tier to the figures. Records that are in both tiers count in
    both."""
    for offer in view.offers:
        size = sum(segment.size for segment in offer.segments)
        if offer.tier == "remote":
            figures.remote_bytes += size
            figures.remote_segments += len(offer.segments)
        else:
            figures.local_bytes += size
            figures.local_segments += len(offer.segments)


def committed_offsets_options(options: dict[str, str]) -> dict[str, str]:
    """Return the options that read the committed offsets in the same log directories and storages."""
    kept = {
        name: value
        for name, value in options.items()
        if name.lower() not in SELECTIONS and not name.lower().startswith(OFFSET_OPTION_PREFIXES)
    }
    return kept | {"table": "offsets"}


def problem_of_groups(options: dict[str, str]) -> str | None:
    """The reason why the committed offsets cannot be read; None if they can."""
    from moldau.storage.files.local_files import LocalFiles
    from moldau.tables.planning.planner import Planner

    try:
        with catch_warnings(action="ignore"):  # The remark of the report says it.
            views = Planner(LocalFiles(), parse_options(committed_offsets_options(options))).views()
    except Refused as refusal:
        return str(refusal)
    return None if views else "no partition of __consumer_offsets is in the places that are read"


def run_report(session: SparkSession, plan: ReportPlan, progress: JobProgress) -> Report:
    """Run a report on Spark. It adds its figures to those of the plan, so a plan can be run only once."""
    job, topics = plan.job, {each.topic: each for each in plan.topics}
    with progress_shown(session, progress), exchange_tasks_set(session, plan.size):
        buckets = add_batches(session, job, topics)
        if job.hot_keys:
            add_keys(session, job, topics)
        if plan.has_groups:
            add_groups(session, job, topics)
    return Report(plan.cluster_id, buckets, plan.topics, plan.remarks)


@contextmanager
def exchange_tasks_set(session: SparkSession, size: int) -> Iterator[None]:
    """Set the number of shuffle partitions of Spark inside the `with`. `size`: the bytes of segments. There is one
    partition for each `EXCHANGE_SIZE` bytes, at least one for each core, and at most `EXCHANGE_TASKS_MAX`.

    Spark does not join small shuffle partitions if their rows are kept for a second query. All of its 200 tasks would
    run.
    """
    before = session.conf.get(EXCHANGE_TASKS) or EXCHANGE_TASKS_MAX
    cores = session.sparkContext.defaultParallelism
    session.conf.set(EXCHANGE_TASKS, str(min(max(cores, -(-size // EXCHANGE_SIZE)), EXCHANGE_TASKS_MAX)))
    try:
        yield
    finally:
        session.conf.set(EXCHANGE_TASKS, before)


def add_batches(session: SparkSession, job: ReportJob, topics: dict[str, TopicFigures]) -> TimeBuckets | None:
    """Count the records and bytes of each topic. Returns the time buckets of the report."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    is_data = ~f.col("isControl")
    second = f.floor(f.unix_millis("maxTimestamp") / 1000)
    fine = (
        session.read.format("moldau").options(**job.options, table="batches").load().where(is_data)
        .groupBy("topic", "partition", "codec", f.when(second >= 0, second).alias("second"))
        .agg(
            f.sum("records").alias("records"),
            f.sum("bytes").alias("bytes"),
            f.count("*").alias("batches"),
            f.sum(f.when(f.col("isAborted"), f.col("records")).otherwise(0)).alias("aborted"),
        )
        .persist(StorageLevel.MEMORY_AND_DISK)
    )  # fmt: skip
    try:
        add_partitions(fine, topics)
        buckets = buckets_of(job, topics)
        if buckets is not None:
            add_buckets(fine, buckets, topics)
    finally:
        fine.unpersist()
    return buckets


def add_partitions(fine: DataFrame, topics: dict[str, TopicFigures]) -> None:
    """Add the figures of each partition and codec to the topics."""
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in ("records", "bytes", "batches", "aborted")]
    rows = fine.groupBy("topic", "partition", "codec").agg(
        *sums, f.min("second").alias("first"), f.max("second").alias("last")
    )
    partitions = {(topic.topic, each.partition): each for topic in topics.values() for each in topic.partitions}
    for topic, partition, codec, records, size, batches, aborted, first, last in rows.collect():
        figures = topics[topic]
        partitions[topic, partition].records += records
        partitions[topic, partition].bytes += size
        figures.codecs[codec] = figures.codecs.get(codec, 0) + size
        figures.batches += batches
        figures.aborted += aborted
        figures.first_s = min_of_known(figures.first_s, first)
        if last is not None:
            figures.last_s = max(last, figures.last_s or 0)


def min_of_known(one: int | None, other: int | None) -> int | None:
    """The smaller of two numbers; if one of them is None, the other one; None if both are."""
    known = [each for each in (one, other) if each is not None]
    return min(known, default=None)


def buckets_of(job: ReportJob, topics: dict[str, TopicFigures]) -> TimeBuckets | None:
    """Return time buckets between the times that the job names, or else between the first and the last timestamp.
    Return None if no record has a timestamp."""
    firsts = [each.first_s for each in topics.values() if each.first_s is not None]
    lasts = [each.last_s for each in topics.values() if each.last_s is not None]
    if not firsts or not lasts:
        return None
    first = min(firsts) if job.since_ms is None else job.since_ms // 1000
    last = max(lasts) if job.until_ms is None else (job.until_ms - 1) // 1000
    return buckets_between(min(first, last), last, job.bucket_s)


def add_buckets(fine: DataFrame, buckets: TimeBuckets, topics: dict[str, TopicFigures]) -> None:
    """Add the figures of each time bucket to the topics."""
    from pyspark.sql import functions as f

    index = f.floor((f.col("second") - buckets.start_s) / buckets.width_s)
    is_inside = (index >= 0) & (index < buckets.count)
    rows = fine.groupBy("topic", f.when(is_inside, index).alias("bucket")).agg(f.sum("records"), f.sum("bytes"))
    for each in topics.values():
        each.buckets = [BucketFigures() for _ in range(buckets.count)]
    for topic, bucket, records, size in rows.collect():
        if bucket is None:
            topics[topic].outside += records
        else:
            topics[topic].buckets[bucket] = BucketFigures(records, size)


def add_keys(session: SparkSession, job: ReportJob, topics: dict[str, TopicFigures]) -> None:
    """Add the keys with the most records to the figures of each topic."""
    from pyspark import StorageLevel
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    session.dataSource.register(KeyCountSource)
    counted = session.read.format(KeyCountSource.name()).options(**job.options).load()
    sums = [f.sum(name).alias(name) for name in ("count", "missed", "absent")]
    summed = counted.groupBy("topic", "key").agg(*sums).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        distinct = {row[0]: integer_or_zero(row[1]) for row in summed.groupBy("topic").agg(f.count("key")).collect()}
        order = Window.partitionBy("topic", f.col("key").isNull()).orderBy(f.desc("count"), "key")
        ranked = summed.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= job.hot_keys).collect()
    finally:
        summed.unpersist()
    for name, topic in topics.items():
        rows = [tuple(row)[1:5] for row in ranked if row["topic"] == name]
        topic.keys = key_figures(rows, distinct.get(name, 0))


def key_figures(rows: Sequence[Row], distinct: int) -> KeyFigures | None:
    """The keys of a topic, from rows (key, count, missed, absent). The row of the key null has the sums over all tasks.
    None if no record was read."""
    totals = next((numbers for key, *numbers in rows if key is None), None)
    if totals is None:
        return None
    without_key, _, absent_anywhere = map(integer_or_zero, totals)
    hot = []
    for key, *numbers in rows:
        if isinstance(key, bytes | bytearray):
            count, missed, absent = map(integer_or_zero, numbers)
            hot.append(HotKey(bytes(key), count, count + missed + absent_anywhere - absent))
    hot.sort(key=lambda each: (-each.records, each.key))
    return KeyFigures(tuple(hot), without_key, distinct, absent_anywhere)


def integer_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0


def add_groups(session: SparkSession, job: ReportJob, topics: dict[str, TopicFigures]) -> None:
    """Add the lag of each group to the topics of which it has committed offsets."""
    from pyspark.sql import functions as f

    offsets = session.read.format("moldau").options(**committed_offsets_options(job.options)).load()
    rows = (
        offsets.where(f.col("topic").isin(list(topics)))
        .select("topic", "group", "partition", "offset", f.unix_millis("commitTimestamp"))
        .collect()
    )
    for name, topic in topics.items():
        topic.groups = lags_of(topic, [tuple(row)[1:] for row in rows if row["topic"] == name])


def lags_of(topic: TopicFigures, rows: Sequence[Row]) -> list[GroupLag]:
    """The lag of each group on a topic, from rows (group, partition, offset, time of the commit in ms). The largest lag
    comes first."""
    ends = {each.partition: each.high_watermark for each in topic.partitions}
    lags: dict[str, dict[int, int]] = {}
    times: dict[str, int] = {}
    for group, partition, offset, committed_ms in rows:
        assert isinstance(group, str) and isinstance(partition, int) and isinstance(offset, int)
        if partition not in ends:
            continue
        # A group may have committed an offset past the high watermark that the broker wrote down last.
        lags.setdefault(group, {})[partition] = max(0, ends[partition] - offset)
        if isinstance(committed_ms, int):
            times[group] = max(committed_ms, times.get(group, 0))
    found = [
        GroupLag(group, sum(each.values()), dict(sorted(each.items())), times.get(group))
        for group, each in lags.items()
    ]
    return sorted(found, key=lambda each: (-each.records, each.group))


class KeyCountSource(MoldauDataSource):
    """The data source whose tasks count the keys of the records that they read."""

    @classmethod
    def name(cls) -> str:
        return "moldau_key_counts"

    def schema(self) -> StructType:
        return KEY_COUNT_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return KeyCountReader(parse_options(self.options))


class KeyCountReader(SegmentReader):
    """Counts the keys of each task of Spark."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options, ["key"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Task = partition.value or ()
        return row_batches(self._rows(task), KEY_COUNT_COLUMNS, KEY_COUNT_COLUMNS.fieldNames())

    def _rows(self, task: Task) -> Iterator[Row]:
        from itertools import groupby

        for topic, slices in groupby(task, lambda each: each.topic):
            counts = KeyCounts()
            for batch in self.batches(tuple(slices), self._columns):
                counts.add_column(batch.column("key"))
            top = counts.top()
            yield (topic, None, counts.without_key, 0, counts.missed_max)
            for key, count, missed in top:
                yield (topic, key, count, missed, counts.missed_max)


KEYS_MAX: Final = 1 << 17
"""The most keys that `KeyCounts` holds in memory."""
SIZE_MAX: Final = 64 << 20
"""The most bytes of keys that `KeyCounts` holds in memory."""
REPORTED_MAX: Final = 1 << 14
"""The most keys whose counts a task returns."""


class KeyCount(NamedTuple):
    """A key and its count. The key has between `records` and `records + missed` records."""

    key: bytes
    records: int
    missed: int


class KeyCounts:
    """Counts the keys of one topic in bounded memory."""

    def __init__(self, *, keys_max: int = KEYS_MAX, size_max: int = SIZE_MAX) -> None:
        self._keys_max = keys_max
        self._size_max = size_max
        self._counts: dict[bytes, int] = {}
        self._missed: dict[bytes, int] = {}
        """The most records that the count of a key may lack, by key. A key with an exact count has no entry."""
        self._size = 0
        self.missed_max = 0
        """The maximum number of records of a key that has no count."""
        self.without_key = 0

    def add_column(self, keys: pa.Array) -> None:
        """Count the keys of a column of records. A null counts as a record without a key."""
        self.without_key += keys.null_count
        counted = keys.drop_null().value_counts()
        self.add(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))

    def add(self, counted: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of some keys."""
        counts = self._counts
        for key, count in counted:
            before = counts.get(key)
            if before is not None:
                counts[key] = before + count
                continue
            counts[key] = count
            self._size += len(key)
            if self.missed_max:
                self._missed[key] = self.missed_max
            if len(counts) > self._keys_max or self._size > self._size_max:
                self._shrink(self._keys_max // 2, self._size_max // 2)
                counts = self._counts

    def top(self, keys_max: int = REPORTED_MAX) -> list[KeyCount]:
        """Drop all but the `keys_max` keys with the largest counts, and return the counts of these keys."""
        if len(self._counts) > keys_max:
            self._shrink(keys_max, self._size_max)
        return [KeyCount(key, count, self._missed.get(key, 0)) for key, count in self._counts.items()]

    def _shrink(self, keys_max: int, size_max: int) -> None:
        """Keep the keys with the largest counts: at most `keys_max` keys of at most `size_max` bytes."""
        dropped_max = 0
        kept: dict[bytes, int] = {}
        size = 0
        for key, count in sorted(self._counts.items(), key=lambda each: -each[1]):
            if len(kept) < keys_max and size + len(key) <= size_max:
                kept[key] = count
                size += len(key)
            else:
                dropped_max = max(dropped_max, count + self._missed.pop(key, 0))
        self._counts, self._size = kept, size
        self.missed_max = max(self.missed_max, dropped_max)
