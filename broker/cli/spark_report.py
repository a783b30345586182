"""`moldau spark report`: size, rate, skew, hot keys and lag of topics, as text, as JSON, and as a page with plots."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import Invocation
from moldau.broker.cli.spark_session import add_session_arguments, failures_reported, job_session, progress_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from moldau.spark_jobs.jobs.report import ReportJob

    Jobs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DESCRIPTION: Final = """\
Show, for each topic: its size in records and bytes, its rate over time, its skew over partitions, the keys with the
most records, and the lag of the groups that read it. Sizes, rates and skew come from the headers of the batches; a
batch counts in the bucket of its largest timestamp, and the first and the last bucket may be covered in part. Counts of
keys are exact where no task meets more than 16,384 keys, and lower bounds otherwise; the report says which. A lag is
the high watermark minus the committed offset. Of a partition one replica is read."""


def add_report(jobs: Jobs) -> None:
    """Declare the job."""
    report = jobs.add_parser(
        "report",
        help="size, rate, skew, hot keys and lag of topics",
        description=DESCRIPTION,
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
    """The job that the arguments describe. Raises `Refused`."""
    from moldau.spark_jobs.jobs.moments import milliseconds_of
    from moldau.spark_jobs.jobs.report import ReportJob
    from moldau.spark_jobs.refusals import Refused

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
    """Plan from the files, then start Spark."""
    from moldau.spark_jobs.jobs.progress import JobProgress, counted, megabytes
    from moldau.spark_jobs.jobs.report import plan_report, run_report
    from moldau.spark_jobs.jobs.report_html import page_of
    from moldau.spark_jobs.jobs.report_text import text_lines

    say = progress_of(arguments, invocation)
    with failures_reported():
        plan = plan_report(job_of(arguments))
        topics = counted(len(plan.topics), "topic")
        partitions = counted(sum(len(each.partitions) for each in plan.topics), "partition")
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
