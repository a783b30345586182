"""The Spark session of a job: the arguments that say where Spark runs, and the failures that the command reports."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moldau.broker.cli.invocation import CommandError, Invocation, text_of

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


def add_isolation(arguments: argparse._ActionsContainer) -> None:
    """Declare the options that say whether records of aborted and open transactions are read: --read-committed, the
    default, and --read-uncommitted.
    """
    chosen = arguments.add_mutually_exclusive_group()
    chosen.add_argument(
        "--read-committed",
        dest="isolation",
        action="store_const",
        const="read_committed",
        default="read_committed",
        help="leave out aborted transactions, and end at the first open one (default)",
    )
    chosen.add_argument(
        "--read-uncommitted",
        dest="isolation",
        action="store_const",
        const="read_uncommitted",
        help="take the records of aborted and open transactions as well",
    )


def progress_of(arguments: argparse.Namespace, invocation: Invocation) -> Callable[[str], None]:
    """Make a function that prints a line of progress; with `--no-progress` it prints nothing. The first line stays. On
    a terminal each later line replaces the one before it.
    """
    is_begun = False

    def say(line: str) -> None:
        nonlocal is_begun
        if arguments.progress:
            (invocation.errors.show if is_begun else invocation.errors.say)(line)
            is_begun = True

    return say


@contextmanager
def job_session(arguments: argparse.Namespace, invocation: Invocation, name: str) -> Iterator[SparkSession]:
    """A context with the Spark session of a job. An interrupt (Ctrl-C) ends the job and its session, without stack
    traces of Spark.
    """
    from moldau.spark_jobs.session import local_session, master_of

    master = master_of(arguments.master, invocation.variables)
    handler, root = signal.getsignal(signal.SIGINT), logging.getLogger()
    root.addFilter(_is_shown)
    try:
        with local_session(f"moldau spark {name}", master=master) as session:
            signal.signal(signal.SIGINT, handler)  # The session's own asks the JVM while another request is under way.
            yield session
    except BaseException as failure:
        if follows_interrupt(failure):
            raise KeyboardInterrupt from None
        raise
    finally:
        invocation.errors.erase()
        signal.signal(signal.SIGINT, handler)
        root.removeFilter(_is_shown)


def follows_interrupt(failure: BaseException | None) -> bool:
    """Whether an exception is an interrupt, or was raised while an interrupt was handled, for example by a request to
    the JVM.
    """
    while failure is not None and not isinstance(failure, KeyboardInterrupt):
        failure = failure.__context__
    return failure is not None


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether a log record is shown. A record with the stack trace of an interrupt is not: py4j logs it, and raises the
    interrupt too.
    """
    return record.exc_info is None or not follows_interrupt(record.exc_info[1])


@contextmanager
def failures_as_command_errors() -> Iterator[None]:
    """A context that turns the exceptions of a plan or of a query into `CommandError`."""
    from pyspark.errors import PySparkException

    from moldau.protocol.primitives import MalformedMessage
    from moldau.spark_jobs.failures import reason_of
    from moldau.spark_jobs.java_runtime import NoJavaRuntime
    from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from moldau.storage.tiered.port import RemoteStorageError
    from moldau.tables.refusals import Refused

    try:
        yield
    except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError, OSError, NoJavaRuntime) as problem:
        raise CommandError(text_of(problem)) from None
    except PySparkException as problem:
        raise CommandError(reason_of(problem)) from None
