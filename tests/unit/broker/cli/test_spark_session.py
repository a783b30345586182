"""The session of a job: an interrupt is reported as one, whatever a request to the JVM made of it."""

from __future__ import annotations

import argparse
import io
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException

from moldau.broker.cli.invocation import CommandError, Invocation, Terminal
from moldau.broker.cli.spark_session import failures_as_command_errors, follows_interrupt, job_session, progress_of
from moldau.spark_jobs import session as sessions
from moldau.spark_jobs.java_runtime import NoJavaRuntime


@contextmanager
def session_with_a_handler(name: str, *, master: str) -> Iterator[object]:
    """What a session of Spark does to the process: it takes the interrupt for itself."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield object()


@pytest.fixture
def invocation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Invocation]:
    before = signal.getsignal(signal.SIGINT)  # A process in the background of a shell ignores the interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sessions, "local_session", session_with_a_handler)
    yield Invocation(Terminal(io.StringIO(), {}), Terminal(io.StringIO(), {}), {})
    signal.signal(signal.SIGINT, before)


def failed_request() -> None:
    """Fail as a request to the JVM that is interrupted and whose cleaning up fails as well."""
    try:
        raise KeyboardInterrupt
    finally:
        raise ConnectionError("the answer is empty")


def test_a_request_that_fails_after_an_interrupt_is_an_interrupt(
    invocation: Invocation, caplog: pytest.LogCaptureFixture
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), job_session(argparse.Namespace(master=None), invocation, "x"):
        assert signal.getsignal(signal.SIGINT) is handler
        try:
            failed_request()
        except ConnectionError:
            logging.exception("while sending a command")
            raise
    assert caplog.messages == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_other_failures_are_passed_on_and_logged(invocation: Invocation, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionError), job_session(argparse.Namespace(master=None), invocation, "x"):
        logging.error("a warning of a library")
        raise ConnectionError("the answer is empty")
    assert caplog.messages == ["a warning of a library"]


def test_an_interrupt_is_found_behind_other_failures() -> None:
    with pytest.raises(ConnectionError) as found:
        failed_request()
    assert follows_interrupt(found.value)
    assert not follows_interrupt(ConnectionError()) and not follows_interrupt(None)


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def progress_on(stream: io.StringIO, **variables: str) -> str:
    invocation = Invocation(Terminal(io.StringIO(), {}), Terminal(stream, variables), {})
    say = progress_of(argparse.Namespace(progress=True), invocation)
    for line in ("reading 3 MB", "2 s: 1 of 3 tasks", "4 s: 2 of 3 tasks"):
        say(line)
    invocation.errors.erase()
    invocation.errors.erase()
    return stream.getvalue()


def test_a_line_of_progress_replaces_the_one_before_it_on_a_terminal() -> None:
    assert progress_on(Screen()) == "reading 3 MB\n2 s: 1 of 3 tasks\033[K\r4 s: 2 of 3 tasks\033[K\r\033[K"
    lines = "reading 3 MB\n2 s: 1 of 3 tasks\n4 s: 2 of 3 tasks\n"
    assert progress_on(io.StringIO()) == progress_on(Screen(), TERM="dumb") == lines


def test_a_machine_without_java_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Spark is imported, let alone started."""

    def refuse(variables: object) -> None:
        raise NoJavaRuntime("Spark needs Java 17 or later (JAVA_HOME: none)")

    monkeypatch.setattr(sessions, "find_java", refuse)
    monkeypatch.setattr(sessions, "_started", lambda *_: pytest.fail("Spark was started"))
    invocation = Invocation(Terminal(io.StringIO(), {}), Terminal(io.StringIO(), {}), {})
    with (
        pytest.raises(CommandError, match=r"^Spark needs Java 17 or later \(JAVA_HOME: none\)$"),
        failures_as_command_errors(),
        job_session(argparse.Namespace(master=None), invocation, "x"),
    ):
        pytest.fail("the job began")


def test_the_reason_is_the_last_line() -> None:
    """A failure that is not the data source's is shown whole, and its first line again: tasks log no traces."""
    with pytest.raises(CommandError) as told, failures_as_command_errors():
        raise PySparkException("Job aborted: no space\n\tat org.apache.spark.A\n\tat org.apache.spark.B")
    assert str(told.value).splitlines()[-1] == "Job aborted: no space"
    assert "org.apache.spark.B" in str(told.value)
    with pytest.raises(CommandError) as told, failures_as_command_errors():
        raise PySparkException(
            "Job aborted\nmoldau.tables.refusals.DataLost: t-0: offset 5 is gone\n\tat org.apache.spark.A"
        )
    assert str(told.value) == "t-0: offset 5 is gone"
