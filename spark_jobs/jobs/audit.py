"""The job `audit`: reads every replica and every remote segment once, and compares the replicas with the segments.

driver    Lists each log directory and each storage separately, so that all replicas are audited, and not only the one
          that a read would choose. It checks what the listings show (`place_audit.py`).
tasks     Each task audits whole segments (`segment_audit.py`). A remote segment is compared with the local files that
          have the same offsets, except for offsets that compaction has cleaned in only one of the two tiers.
output    A row for each problem, and a row for each segment that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from moldau.protocol.primitives import MalformedMessage
from moldau.spark_jobs.data_source import MoldauDataSource
from moldau.spark_jobs.jobs.place_audit import place_problems
from moldau.spark_jobs.jobs.progress import JobProgress, progress_shown
from moldau.spark_jobs.jobs.segment_audit import BatchMark, Problem, SegmentFindings, audit_segment, cleaned_end_of
from moldau.spark_jobs.views.schemas import row_batches
from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, TopicPartition, read_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.decoding.segment_batches import batches_of
from moldau.tables.options.option_values import names_in
from moldau.tables.options.read_options import ReadOptions, parse_options
from moldau.tables.origins.cluster_metadata import ClusterMetadata
from moldau.tables.origins.port import PartitionOrigin, Slice
from moldau.tables.planning.planner import open_origins
from moldau.tables.refusals import DataLost, Refused
from moldau.tables.views.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

TASK_SIZE: Final = 256 << 20
"""The least bytes of segments for one task of an audit, except for the last task."""
SEGMENT_READ_CHECK: Final = "read"
"""The value of `check` in the row that says how much of a segment was read."""
REMOVED_SEGMENT_CHECK: Final = "gone"
"""The value of `check` in the row of a segment that was removed while the audit ran."""
FINDINGS: Final = StructType(
    [
        StructField("check", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("path", StringType()),
        StructField("offset", LongType()),
        StructField("message", StringType()),
        StructField("batches", LongType()),
        StructField("records", LongType()),
        StructField("bytes", LongType()),
    ]
)


class AuditedSegment(NamedTuple):
    """A segment to audit, and the local files with which it is compared."""

    whole: Slice
    local: tuple[Slice, ...] = ()
    compared_from: int = 0
    """The first offset that is compared. From it on, compaction has cleaned neither tier."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The segments that an audit reads, in tasks."""

    options: dict[str, str]
    tasks: tuple[tuple[AuditedSegment, ...], ...]
    problems: tuple[Problem, ...] = ()
    """The problems that the listings of the log directories and storages show."""

    @property
    def segments(self) -> list[AuditedSegment]:
        return [each for task in self.tasks for each in task]

    @property
    def size(self) -> int:
        """The bytes of the segments to read."""
        return sum(each.whole.size for each in self.segments)


@dataclass(slots=True)
class AuditResult:
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    gone: int = 0
    """The number of segments that were removed while the audit ran."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        return not self.problems


def plan_audit(options: dict[str, str]) -> AuditPlan:
    """List the segments of each log directory and each storage separately, so that every replica of a partition is
    audited. Raises `Refused`, `CorruptCheckpoint`, `MalformedMessage`, `RemoteStorageError` and OSError.
    """
    wanted = names_in(options["subscribe"]) if "subscribe" in options else None
    found_offers: dict[TopicPartition, list[PartitionOrigin]] = {}
    cleaned: dict[TopicPartition, int] = {}
    parsed = parse_options(
        {name: value for name, value in options.items() if name != "subscribe"} | {"table": "topics"}
    )
    metadata = ClusterMetadata(LocalFiles(), wanted)
    metadata.refresh(parsed.directories)
    origins = [each for place in places_of(parsed) for each in open_origins(LocalFiles(), place, metadata)]
    for origin in origins:
        keys = sorted(key for key in origin.partitions() if wanted is None or key[0] in wanted)
        for offer in origin.open(keys):
            found_offers.setdefault(offer.key, []).append(offer)
    for directory in parsed.directories:
        for key, end in read_offsets(LocalFiles(), directory, CLEANER_OFFSET_CHECKPOINT).items():
            cleaned[key] = max(end, cleaned.get(key, 0))
    for topic in wanted or ():
        if not any(key[0] == topic for key in found_offers):
            raise Refused(f"no partition of {topic} is in {options['path']}")
    problems = tuple(place_problems(origins, found_offers, wanted, metadata))
    local: list[AuditedSegment] = []
    remote: list[AuditedSegment] = []
    for offers in found_offers.values():
        is_dense = not any(each.may_have_gaps for each in offers)
        files = [each for offer in offers if offer.tier == "local" for each in whole_segments(offer, is_dense=is_dense)]
        local += [AuditedSegment(each) for each in files]
        for offer in offers:
            if offer.tier == "remote":
                remote += [with_local_files(each, files, cleaned) for each in whole_segments(offer, is_dense=is_dense)]
    return AuditPlan(options, tuple(packed_segments([*local, *remote])), problems)


def places_of(parsed: ReadOptions) -> list[ReadOptions]:
    """Split the options of a read: return a copy for each log directory and each tiered storage that they name, which
    reads only this place."""
    directories = [replace(parsed, directories=(each,), stores=()) for each in parsed.directories]
    return [*directories, *(replace(parsed, directories=(), stores=(each,)) for each in parsed.stores)]


def whole_segments(offer: PartitionOrigin, *, is_dense: bool) -> Iterator[Slice]:
    """Yield a slice for each segment, up to the high watermark.

    `is_dense`: whether no replica and no storage shows that a cleaner works on the partition. Raises OSError and
    `MalformedMessage`.
    """
    for segment in offer.segments:
        end_position, last_offset = segment.size, None
        if segment.is_growing:
            cuts = offer.cuts(segment, segment.start_offset, segment.end_offset, max(segment.size, 1))
            if not cuts:
                continue
            end_position, last_offset = cuts[-1].end_position, cuts[-1].last_offset
        yield Slice(
            *offer.key,
            offer.source,
            segment,
            0,
            end_position,
            last_offset,
            segment.start_offset,
            segment.end_offset,
            is_dense=is_dense and segment.is_dense,
        )


def with_local_files(remote: Slice, local: Sequence[Slice], cleaned: dict[TopicPartition, int]) -> AuditedSegment:
    """Return a remote segment with the local files that have some of its offsets. The audit compares it with these
    files."""
    beside = [each for each in local if each.start_offset < remote.end_offset and each.end_offset > remote.start_offset]
    return AuditedSegment(remote, tuple(beside), cleaned.get((remote.topic, remote.partition), 0))


def packed_segments(segments: Sequence[AuditedSegment]) -> Iterator[tuple[AuditedSegment, ...]]:
    task: list[AuditedSegment] = []
    size = 0
    for each in segments:
        task.append(each)
        size += each.whole.size + sum(other.size for other in each.local)
        if size >= TASK_SIZE:
            yield tuple(task)
            task, size = [], 0
    if task:
        yield tuple(task)


def run_audit(session: SparkSession, plan: AuditPlan, progress: JobProgress) -> AuditResult:
    """Run the audit on Spark."""
    session.dataSource.register(AuditSource)
    with progress_shown(session, progress):
        rows = session.read.format(AuditSource.name()).options(**plan.options).load().collect()
    return result_of([tuple(row) for row in rows], plan.problems)


def result_of(rows: Sequence[Row], problems: Sequence[Problem] = ()) -> AuditResult:
    """Return the result of an audit, from the rows of all tasks and the problems that the plan has found."""
    result = AuditResult(problems=list(problems))
    for check, _, _, path, offset, message, batches, records, size in rows:
        if check == SEGMENT_READ_CHECK:
            assert isinstance(batches, int) and isinstance(records, int) and isinstance(size, int)
            result.segments += 1
            result.batches += batches
            result.records += records
            result.size += size
        elif check == REMOVED_SEGMENT_CHECK:
            result.gone += 1
        else:
            assert isinstance(offset, int)
            result.problems.append(Problem(str(check), str(path), offset, str(message)))
    result.problems.sort(key=lambda each: (each.path, each.offset))
    return result


class AuditSource(MoldauDataSource):
    """The data source whose tasks audit segments, and return their findings as rows."""

    @classmethod
    def name(cls) -> str:
        return "moldau_audit"

    def schema(self) -> StructType:
        return FINDINGS

    def reader(self, schema: StructType) -> DataSourceReader:
        return AuditReader(dict(self.options.items()))


class AuditReader(DataSourceReader):
    """Audits the segments of each task of Spark."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in plan_audit(self._options).tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: tuple[AuditedSegment, ...] = partition.value or ()
        return row_batches((row for each in task for row in audited_rows(each)), FINDINGS, FINDINGS.fieldNames())


def audited_rows(audited: AuditedSegment) -> Iterator[Row]:
    """Audit a segment. Yield a row for each problem, and a row that says how much was read."""
    whole = audited.whole
    findings = audit_segment(whole)
    if audited.local and not findings.is_gone:
        compare_tiers(audited, findings)
    for check, path, offset, message in findings.problems:
        yield (check, whole.topic, whole.partition, path, offset, message, 0, 0, 0)
    read = (len(findings.batches), findings.records_count, findings.size)
    yield (
        REMOVED_SEGMENT_CHECK if findings.is_gone else SEGMENT_READ_CHECK,
        whole.topic,
        whole.partition,
        whole.path,
        -1,
        "",
        *read,
    )


def compare_tiers(audited: AuditedSegment, findings: SegmentFindings) -> None:
    """Report the batches that only one of the tiers has, and the batches whose checksums differ."""
    whole = audited.whole
    remote = {each.base_offset: each for each in findings.batches}
    try:
        cleaned_end = max(audited.compared_from, cleaned_end_of(whole))
    except DataLost:  # Retention has removed the remote segment since its audit.
        return
    for local in audited.local:
        try:
            own = list(batch_marks_of(local))
        except (MalformedMessage, DataLost):  # The audit of the local segment reports it, or the segment is gone.
            continue
        start = max(local.start_offset, whole.start_offset, cleaned_end)
        end = min(local.end_offset, whole.end_offset)
        here = {each.base_offset: each for each in own if start <= each.base_offset < end}
        there = {offset: each for offset, each in remote.items() if start <= offset < end}
        for offset in sorted(here.keys() | there.keys()):
            mine, its = here.get(offset), there.get(offset)
            if mine is None or its is None:
                place = whole.path if its is None else local.path
                findings.report("tiers", place, offset, f"the batch of offset {offset} is in the other tier only")
            elif (mine.last_offset, mine.crc) != (its.last_offset, its.crc):
                findings.report("tiers", whole.path, offset, f"the batch differs from the one in {local.path}")


def batch_marks_of(local: Slice) -> Iterator[BatchMark]:
    """Yield a mark for each batch of a local segment."""
    for position, header, _, _ in batches_of(local):
        yield BatchMark(position, header.base_offset, header.last_offset, header.max_timestamp, header.crc)
