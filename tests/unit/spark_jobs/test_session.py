"""What Spark's processes write to the standard error of a job."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from moldau.spark_jobs.session import without_worker_traces

WORKER = """
import os, sys, traceback
print("before", file=sys.stderr, flush=True)
try:
    raise BrokenPipeError(32, "Broken pipe")
except OSError:
    traceback.print_exc()
print("after", file=sys.stderr)
os.write(2, b"Traceback (most recent call last):\\n")
"""
"""The last line is the beginning of a trace that the end of the process cuts."""


@pytest.mark.processes
def test_a_process_writes_to_standard_error_without_traces_of_hung_up_readers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with without_worker_traces() as thread:
        worker = subprocess.Popen([sys.executable, "-c", WORKER])
    os.write(2, b"ours\n")
    assert worker.wait(60) == 0
    thread.join(60)
    assert not thread.is_alive(), "the end of the last process ends the thread"
    assert sorted(capfd.readouterr().err.splitlines()) == ["after", "before", "ours"]
