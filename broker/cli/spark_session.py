"""The Spark session of a job: the arguments that say where it runs, and the failures that the command reports."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker.cli.invocation import CommandError, Invocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --master and --progress."""
    parser.add_argument(
        "--master", help="Spark's master (default: the variable MASTER, else the cores of this machine)"
    )
    parser.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=True, help="show progress every few seconds"
    )


def progress_of(arguments: argparse.Namespace, invocation: Invocation) -> Callable[[str], None]:
    """What shows a line of progress."""

    def say(line: str) -> None:
        if arguments.progress:
            invocation.errors.say(line)

    return say


@contextmanager
def job_session(arguments: argparse.Namespace, invocation: Invocation, name: str) -> Iterator[SparkSession]:
    """A session for a job."""
    from spark_jobs.session import local_session, master_of

    master = master_of(arguments.master, invocation.variables)
    with local_session(f"moldau spark {name}", master=master) as session:
        yield session


@contextmanager
def failures_reported() -> Iterator[None]:
    """Turn the failures of a plan and of a query into `CommandError`."""
    from pyspark.errors import PySparkException

    from protocol.primitives import MalformedMessage
    from spark_jobs.failed_query import reason_of
    from spark_jobs.java_runtime import NoJava
    from spark_jobs.refusals import Refused
    from storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from storage.tiered.errors import RemoteStorageError

    try:
        yield
    except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError, OSError, NoJava) as problem:
        raise CommandError(str(problem)) from None
    except PySparkException as problem:
        raise CommandError(reason_of(problem)) from None
