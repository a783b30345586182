"""`moldau spark audit`: checks the segments of topics, and ends with 1 where one of them is damaged."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from broker.cli.invocation import CommandError, Invocation

if TYPE_CHECKING:
    from typing import TypeAlias

    from spark_jobs.jobs.audit import AuditResult

    Jobs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_audit(jobs: Jobs) -> None:
    """Declare the job."""
    audit = jobs.add_parser(
        "audit",
        help="check checksums, offsets and indexes, and local segments against tiered ones",
        description="Read every replica and every remote segment once: the checksum of each batch, the order of the "
        "offsets, the indexes beside the segment, the objects against their manifests, and the batches of a remote "
        "segment against the local ones. Offsets that compaction has cleaned are not compared between the tiers. The "
        "exit status is 0 where all is well, and 1 where something is wrong or the audit could not be carried out.",
    )
    audit.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    audit.add_argument("--topic", help="the topics, between commas (default: all)")
    audit.add_argument("--json", action="store_true", help="one JSON object for each problem, and one for the summary")
    audit.add_argument("--master", default="local[*]", help="Spark's master (default: the cores of this machine)")
    audit.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=True, help="show progress every few seconds"
    )
    audit.set_defaults(job=run_audit_job, needs_spark=True)


def run_audit_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Plan from the files, then start Spark. Returns the exit status."""
    from pyspark.errors import PySparkException

    from protocol.primitives import MalformedMessage
    from spark_jobs.failed_query import reason_of
    from spark_jobs.java_runtime import NoJava
    from spark_jobs.jobs.audit import AuditResult, plan_audit, run_audit
    from spark_jobs.jobs.progress import JobProgress, megabytes
    from spark_jobs.refusals import Refused
    from spark_jobs.session import local_session
    from storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from storage.tiered.errors import RemoteStorageError

    options = {"path": arguments.path}
    if arguments.topic is not None:
        options["subscribe"] = arguments.topic

    def say(line: str) -> None:
        if arguments.progress:
            invocation.errors.say(line)

    try:
        plan = plan_audit(options)
        say(f"auditing {megabytes(plan.size)} in {len(plan.segments):,} segments and {len(plan.tasks)} tasks")
        result = AuditResult()
        if plan.tasks:
            with local_session("moldau spark audit", master=arguments.master) as session:
                result = run_audit(session, plan, JobProgress(say, plan.size, len(plan.tasks)))
    except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError, OSError, NoJava) as problem:
        raise CommandError(str(problem)) from None
    except PySparkException as problem:
        raise CommandError(reason_of(problem)) from None
    for line in json_lines(result) if arguments.json else text_lines(result):
        invocation.out.say(line)
    return 0 if result.is_intact else 1


def text_lines(result: AuditResult) -> list[str]:
    """The problems, one on a line, and the summary."""
    from spark_jobs.jobs.progress import megabytes

    lines = []
    for check, path, offset, message in result.problems:
        place = path if offset < 0 else f"{path}, offset {offset}"
        lines.append(f"{check}: {place}: {message}")
    gone = f"; {result.gone} segments were removed meanwhile" if result.gone else ""
    found = f"{len(result.problems)} problems" if result.problems else "no problem"
    lines.append(
        f"{result.segments:,} segments, {result.batches:,} batches, {result.records:,} records, "
        f"{megabytes(result.size)}: {found}{gone}"
    )
    return lines


def json_lines(result: AuditResult) -> list[str]:
    """The same for programs."""
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
