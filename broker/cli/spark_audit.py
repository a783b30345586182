"""`moldau spark audit`: checks the segments of topics, and ends with 1 where one of them is damaged."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from moldau.broker.cli.invocation import Invocation
from moldau.broker.cli.spark_session import add_session_arguments, failures_reported, job_session, progress_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from moldau.spark_jobs.jobs.audit import AuditResult

    Jobs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_audit(jobs: Jobs) -> None:
    """Declare the job."""
    audit = jobs.add_parser(
        "audit",
        help="check checksums, offsets, holes and indexes, and replicas and tiers against one another",
        description="Read every replica and every remote segment once: the checksum of each batch, the order of the "
        "offsets and those that are missing, the indexes beside the segment, the objects against their manifests, and "
        "the batches of a remote segment against the local ones. Replicas of different histories, indexes and objects "
        "without their segment, and partitions that are in no place are reported too. Offsets that compaction has "
        "cleaned are not compared between the tiers. The exit status is 0 where all is well, and 1 where something is "
        "wrong or the audit could not be carried out.",
    )
    audit.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    audit.add_argument("--topic", help="the topics, between commas (default: all)")
    audit.add_argument("--json", action="store_true", help="one JSON object for each problem, and one for the summary")
    add_session_arguments(audit)
    audit.set_defaults(job=run_audit_job, needs_spark=True)


def run_audit_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Plan from the files, then start Spark. Returns the exit status."""
    from moldau.spark_jobs.jobs.audit import AuditResult, plan_audit, run_audit
    from moldau.spark_jobs.jobs.progress import JobProgress, counted, megabytes

    options = {"path": arguments.path}
    if arguments.topic is not None:
        options["subscribe"] = arguments.topic
    say = progress_of(arguments, invocation)
    with failures_reported():
        plan = plan_audit(options)
        segments, tasks = counted(len(plan.segments), "segment"), counted(len(plan.tasks), "task")
        say(f"auditing {megabytes(plan.size)} in {segments} and {tasks}")
        result = AuditResult(problems=list(plan.problems))
        if plan.tasks:
            with job_session(arguments, invocation, "audit") as session:
                result = run_audit(session, plan, JobProgress(say, plan.size, len(plan.tasks)))
    for line in json_lines(result) if arguments.json else text_lines(result):
        invocation.out.say(line)
    return 0 if result.is_intact else 1


def text_lines(result: AuditResult) -> list[str]:
    """The problems, one on a line, and the summary."""
    from moldau.spark_jobs.jobs.progress import counted, megabytes

    lines = []
    for check, path, offset, message in result.problems:
        place = path if offset < 0 else f"{path}, offset {offset}"
        lines.append(f"{check}: {place}: {message}")
    gone = f"; {counted(result.gone, 'segment')} removed meanwhile" if result.gone else ""
    found = counted(len(result.problems), "problem") if result.problems else "no problem"
    lines.append(
        f"{counted(result.segments, 'segment')}, {result.batches:,} batches, {counted(result.records, 'record')}, "
        f"{megabytes(result.size)}: {found}{gone}"
    )
    return lines


def json_lines(result: AuditResult) -> list[str]:
    """The problems and the summary, each as one JSON object on a line."""
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
