"""The standard error of Spark's Python workers: traces of a reader that has hung up are left out, others are not."""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from moldau.spark_jobs.python_daemon import BrokenPipeTraceFilter


def raised(error: Exception) -> str:
    try:
        raise error
    except Exception:
        return traceback.format_exc()


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_traces_of_a_reader_that_hung_up_are_left_out(chunk: int) -> None:
    stream = io.StringIO()
    quiet = BrokenPipeTraceFilter(stream)
    other = raised(ValueError("two lines\n  of a message"))
    text = "begin\n" + raised(BrokenPipeError(32, "Broken pipe")) + "between\n" + other
    text += raised(ConnectionResetError(104, "reset")) + "end\n"
    for start in range(0, len(text), chunk):
        quiet.write(text[start : start + chunk])
    quiet.write("a prompt")
    quiet.flush()
    assert stream.getvalue() == "begin\nbetween\n" + other + "end\na prompt"


def test_a_trace_goes_with_its_introduction_and_its_chain() -> None:
    stream = io.StringIO()
    quiet = BrokenPipeTraceFilter(stream)
    try:
        try:
            raise EOFError
        except EOFError:
            raise BrokenPipeError(32, "Broken pipe")  # noqa: B904 - the chain is what is tested
    except BrokenPipeError:
        quiet.write(
            "PySpark daemon failed to flush the output to the worker process:\n" + traceback.format_exc() + "\n"
        )
    quiet.write("Exception ignored in: <_io.BufferedWriter name=9>\nBrokenPipeError: [Errno 32] Broken pipe\n")
    quiet.write(raised(EOFError()))
    assert stream.getvalue() == ""
    quiet.write("\nend\n\n")
    assert stream.getvalue() == "end\n\n"


def test_a_reason_stays_when_the_broken_pipe_after_it_goes() -> None:
    stream = io.StringIO()
    quiet = BrokenPipeTraceFilter(stream)
    reason = raised(EOFError("a message of the user's code"))
    quiet.write(reason + "\nDuring handling of the above exception, another exception occurred:\n\n")
    quiet.write(raised(BrokenPipeError(32, "Broken pipe")))
    quiet.write("Exception ignored in: <a generator>\nTypeError: none of ours\n")
    expected = reason + "\n" + "Exception ignored in: <a generator>\nTypeError: none of ours\n"
    assert stream.getvalue() == expected


def test_a_trace_without_end_is_not_kept() -> None:
    stream = io.StringIO()
    quiet = BrokenPipeTraceFilter(stream)
    quiet.write("Traceback (most recent call last):\n" + "  line\n" * 300)
    assert stream.getvalue().count("\n") > 200


@pytest.fixture
def sockets() -> Iterator[str]:
    """A directory whose path is short: the path of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        yield directory


@pytest.mark.processes
@pytest.mark.parametrize(
    ("work", "is_killed", "error"),
    [
        ("infile.read(1); outfile.write(bytes(9))", True, "BrokenPipeError"),
        ("infile.read(1); outfile.write(bytes(9))", False, "PySpark daemon failed to flush the output"),
        ("from pyspark.serializers import read_int; read_int(infile)", True, "EOFError"),
    ],
)
def test_a_worker_whose_reader_hung_up_says_nothing(
    tmp_path: Path, sockets: str, work: str, is_killed: bool, error: str
) -> None:
    """The daemon as Spark starts it, with a worker whose connection is closed while it waits and when it writes."""
    (tmp_path / "pyspark_hung_up.py").write_text(f"def main(infile, outfile):\n    {work}\n")
    variables = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "true" if is_killed else "",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    said = {}
    for module in ("pyspark.daemon", "moldau.spark_jobs.python_daemon"):
        daemon = subprocess.Popen(
            [sys.executable, "-m", module, "pyspark_hung_up"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert daemon.stdout is not None and daemon.stderr is not None and daemon.stdin is not None
        (length,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(daemon.stdout.read(length).decode())
            (worker,) = struct.unpack(">i", connection.recv(4))
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(worker)], [], [])
        daemon.stdin.close()
        said[module] = daemon.stderr.read().decode()
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
    assert error in said["pyspark.daemon"], said
    assert said["moldau.spark_jobs.python_daemon"] == ""
