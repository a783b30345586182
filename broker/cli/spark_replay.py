"""`moldau spark replay`: writes a range of a topic to a topic again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import Invocation, read_file
from moldau.broker.cli.spark_session import (
    add_isolation,
    add_session_arguments,
    failures_as_command_errors,
    job_session,
    progress_of,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from moldau.spark_jobs.jobs.replay import PlannedReplay, ReplayJob

    Jobs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DESCRIPTION: Final = """\
Write the records of a range of a topic to a topic again, of the same cluster or of another: keys, values and headers as
they were, and the records of each partition in their order. The range is fixed when the replay begins; records that are
written later are not part of it. Records of aborted transactions are left out, and a partition ends where a transaction
is open, unless --read-uncommitted is given. Records get the time of the replay and the partition of their key, unless
they are to keep theirs. Kept timestamps count for the retention of the target.

With --state DIR each record is written once: a consumer with isolation.level=read_committed sees every record of the
range one time, also if tasks fail and where this command is stopped at any point and started again with the same
arguments; consumers that read uncommitted may see records of attempts that failed. The directory must outlive the
command. The one exception is a round whose transactions were decided and which is not committed within 15 minutes:
the coordinator then aborts them, and the next run writes the round again, or refuses and names them where only some
were aborted. The state has the ids of both topics: where one of them was deleted and created again, the command
refuses, and --anew begins again. Without --state each record is written at least once, and a replay that fails
cannot be continued."""


def add_replay(jobs: Jobs) -> None:
    """Declare the job `replay` and its arguments."""
    replay = jobs.add_parser(
        "replay",
        help="a range of a topic, written to a topic again",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = replay.add_argument_group("what is read")
    source.add_argument("--path", metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    source.add_argument(
        "--from", dest="brokers", metavar="HOST:PORT", help="brokers to read from, alone or with --path"
    )
    source.add_argument("--from-config", metavar="FILE", help="client.properties for these brokers")
    source.add_argument("--topic", required=True, help="the topic to read")
    source.add_argument("--since", metavar="TIME", help="from the first record at or after: ISO 8601 (UTC), or ms")
    source.add_argument("--until", metavar="TIME", help="up to the first record at or after this time")
    source.add_argument("--starting", metavar="OFFSETS", help='earliest (default), or JSON: {"orders": {"0": 23}}')
    source.add_argument("--ending", metavar="OFFSETS", help="latest (default), or JSON as above")
    source.add_argument("--snapshot", metavar="FILE", help="up to the offsets of a snapshot")
    add_isolation(source)
    target = replay.add_argument_group("where it goes")
    target.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="brokers to write to")
    target.add_argument("--command-config", metavar="FILE", help="client.properties for these brokers")
    target.add_argument("--to", required=True, metavar="TOPIC", help="the topic to write to, which has to exist")
    target.add_argument("--keep-timestamps", action="store_true", help="records keep their timestamps")
    target.add_argument("--keep-partitions", action="store_true", help="records keep their partitions")
    target.add_argument(
        "--compression", default="lz4", choices=("none", "gzip", "snappy", "lz4", "zstd"), help="of the batches"
    )
    target.add_argument("--rate", type=int, metavar="N", help="records a second at most, in bursts of two seconds")
    replay.add_argument("--state", metavar="DIR", help="write each record once, and continue a replay that was stopped")
    replay.add_argument(
        "--anew",
        action="store_true",
        help="forget the state and replay from the beginning, once; what was written to the target stays",
    )
    replay.add_argument("--dry-run", action="store_true", help="show what would be replayed, and write nothing")
    add_session_arguments(replay)
    replay.set_defaults(job=run_replay_job, needs_spark=True)


def job_of(arguments: argparse.Namespace) -> ReplayJob:
    """The replay that the arguments describe, as a job. Raises `Refused` and `CommandError`."""
    from moldau.spark_jobs.jobs.moments import milliseconds_of
    from moldau.spark_jobs.jobs.replay import ReplayJob, ReplayTarget
    from moldau.tables.options.option_values import names_in
    from moldau.tables.refusals import Refused

    if arguments.path is None and arguments.brokers is None:
        raise Refused("one of --path and --from is needed: the places or the brokers to read from")
    if arguments.rate is not None and arguments.rate <= 0:
        raise Refused(f"--rate: {arguments.rate} is not above 0")
    given = {
        "subscribe": arguments.topic,
        "path": arguments.path,
        "kafka.bootstrap.servers": arguments.brokers,
        "startingOffsets": arguments.starting,
        "endingOffsets": arguments.ending,
        "snapshot": arguments.snapshot,
        "kafka.isolation.level": arguments.isolation,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if arguments.since is not None:
        options["startingTimestamp"] = str(milliseconds_of("--since", arguments.since))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if arguments.until is not None:
        options["endingTimestamp"] = str(milliseconds_of("--until", arguments.until))
    target = ReplayTarget(
        names_in(arguments.bootstrap),
        arguments.to,
        client_options(arguments.command_config),
        arguments.compression,
        arguments.keep_timestamps,
        arguments.keep_partitions,
    )
    return ReplayJob(
        options | client_options(arguments.from_config),
        arguments.topic,
        target,
        arguments.state,
        arguments.rate,
        arguments.anew,
    )


def client_options(config: str | None) -> dict[str, str]:
    """Read the properties of a client from a file, as options of the data source. Empty if no file is given. Raises
    `CommandError`.
    """
    from moldau.tables.options.option_values import is_client_setting

    properties = {} if config is None else read_file(config)
    return {f"kafka.{name}": value for name, value in properties.items() if is_client_setting(f"kafka.{name}")}


def run_replay_job(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Replay a range of a topic. The plan is made from the places and from the state of earlier runs. Spark is started
    only if there are records to write.
    """
    from moldau.spark_jobs.jobs.progress import with_noun
    from moldau.spark_jobs.jobs.replay import plan_replay, run_replay

    say = progress_of(arguments, invocation)
    with failures_as_command_errors():
        planned = plan_replay(job_of(arguments))
        plan = planned.plan
        if arguments.dry_run:
            for line in dry_lines(planned):
                invocation.out.say(line)
            return 0
        if not plan.offsets_count or planned.done == plan.rounds:
            invocation.out.say(f"all of it is written: {planned.records:,} records of {plan.topic} to {plan.target}")
            return 0
        begun = f", {planned.done:,} of them done" if planned.done else ""
        say(
            f"replaying up to {plan.offsets_count:,} records of {plan.topic} "
            f"({with_noun(len(plan.ranges), 'partition')}) to {plan.target} in {with_noun(plan.rounds, 'round')}{begun}"
        )
        with job_session(arguments, invocation, f"replay {plan.topic}") as session:
            records = run_replay(session, planned, say)
    invocation.out.say(f"{records:,} records of {plan.topic} are in {plan.target}")
    return 0


def dry_lines(planned: PlannedReplay) -> list[str]:
    """Describe in lines of text what a replay would write."""
    from moldau.spark_jobs.jobs.progress import megabytes, with_noun

    plan, job = planned.plan, planned.job
    lines = [
        f"{plan.topic}-{partition}: offsets {start:,} to {end:,}, up to {end - start:,} records"
        for partition, (start, end) in sorted(plan.ranges.items())
    ]
    seconds = f", at least {plan.offsets_count / job.rate:,.0f} s" if job.rate else ""
    keeps = {"timestamps": job.target.keeps_timestamps, "partitions": job.target.keeps_partitions}
    kept = " and ".join(name for name, is_kept in keeps.items() if is_kept) or "neither timestamps nor partitions"
    return [
        *lines,
        f"up to {plan.offsets_count:,} records from {megabytes(planned.size)} in "
        f"{with_noun(plan.rounds, 'round')}{seconds}, {with_noun(planned.done, 'round')} done",
        f"to {plan.target} with {planned.target_partitions} partitions, keeping {kept}; "
        f"{'each record once' if job.state else 'each record at least once'}",
    ]
