"""Spark's own cluster manager on this machine: a master and two workers from pip's pyspark, each a process.

A session on it runs every task in one of two executors, so that nothing reaches a task but what Spark pickles.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from moldau.spark_jobs.java_runtime import find_java, home_for_spark
from tests.conformance.brokers import Ports

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK: Final = Path(pyspark.__file__).parent
WORKERS: Final = 2
STARTED_S_MAX: Final = 60.0
STOPPED_S_MAX: Final = 20.0
SETTINGS: Final = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
"""For a session. An executor runs one task at a time, so each worker has one process with tasks."""


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """The URL of a running master, with which the workers are registered. All processes are stopped in the end."""
    port = Ports(28_000, 28_400).pair()
    url = f"spark://127.0.0.1:{port}"
    with home_for_spark(find_java(os.environ)) as home, ExitStack() as stack:
        master = Deployed("master.Master", "--port", str(port), java_home=home, log=directory / "master.log")
        stack.callback(master.stop)
        master.wait_for("I have been elected leader")
        for number in range(WORKERS):
            words = ("--cores", "1", "--memory", "600m", "--work-dir", str(directory / f"work-{number}"), url)
            worker = Deployed("worker.Worker", *words, java_home=home, log=directory / f"worker-{number}.log")
            stack.callback(worker.stop)
        master.wait_for("Registering worker", WORKERS)
        yield url


class Deployed:
    """A process of Spark's deployment with its log. A worker ends its executors when it stops."""

    def __init__(self, name: str, *words: str, java_home: Path, log: Path) -> None:
        self._log = log
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, "--webui-port", "0", *words], env=environment, stdout=out, stderr=out, start_new_session=True
            )

    def wait_for(self, line: str, count: int = 1) -> None:
        """Until the log has so many of these lines."""
        deadline = time.monotonic() + STARTED_S_MAX
        while (text := self._log.read_text(errors="replace")).count(line) < count:
            assert self._process.poll() is None, f"{self._log.name}: {text[-1500:]}"
            assert time.monotonic() < deadline, f"no {line!r} in {self._log.name}: {text[-1500:]}"
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for a process that is still there after a while."""
        self._process.terminate()
        try:
            self._process.wait(STOPPED_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
