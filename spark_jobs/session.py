"""A Spark session for a job, on this machine or on a Spark cluster, with the settings for reading segments."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from moldau.spark_jobs.java_runtime import find_java, home_for_spark
from moldau.spark_jobs.python_daemon import BrokenPipeTraceFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # With this setting rows go from Python to Java nearly twice as fast as over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.attempts.name = org.apache.spark.scheduler.TaskSetManager
logger.attempts.level = off
logger.writing.name = org.apache.spark.sql.execution.datasources
logger.writing.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""The configuration of the logs of the driver's JVM: errors, except for those of tasks, which the exception of the
query has as well. With a configuration of its own Spark does not print the name of its default one."""
DAEMON_MODULE: Final = "spark.python.daemon.module"
DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
ARROW_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true"
"""The options of the JVM for Arrow. Spark reads each value of a column by itself; without this property Arrow checks
its bounds each time. A scan takes about 5 % less CPU with it."""
LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""The settings for a master on this machine: its executors reach the driver at this address, even if the name of the
machine is unknown."""
LOCAL_MASTER: Final = "local[*]"
STDERR_DESCRIPTOR: Final = 2
"""The file descriptor of the standard error, which the JVM and its workers inherit."""


def master_of(given: str | None, variables: Mapping[str, str]) -> str:
    """The master of a job: `given`, else the variable MASTER, which Spark's own programs read, else all cores of this
    machine."""
    return given or variables.get("MASTER") or LOCAL_MASTER


def is_local(master: str) -> bool:
    return master.startswith("local")


@contextmanager
def local_session(
    name: str, *, master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a Spark session for the duration of a job. Its workers run the Python of this process, which on a cluster
    must be at the same path, or the Python that PYSPARK_PYTHON names. Raises `NoJavaRuntime`."""
    daemon = f"{__name__.rpartition('.')[0]}.python_daemon"
    chosen = {**SETTINGS, DAEMON_MODULE: daemon, **(LOOPBACK if is_local(master) else {}), **(settings or {})}
    variables = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    elif "PYSPARK_PYTHON" in os.environ:
        variables["PYSPARK_PYTHON"] = os.environ["PYSPARK_PYTHON"]
    with home_for_spark(find_java(os.environ)) as home, variables_set({**variables, "JAVA_HOME": str(home)}):
        session = _started(name, master, chosen)
    try:
        yield session
    finally:
        session.stop()


def _started(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with tempfile.NamedTemporaryFile("w", prefix="moldau-log4j2-", suffix=".properties") as file:
        file.write(LOG4J)
        file.flush()
        quiet = f"-Dlog4j2.configurationFile=file:{file.name}"  # Log4j reads it when the JVM starts, and not again.
        builder.config(EXECUTOR_OPTIONS, _joined(ARROW_OPTIONS, settings.get(EXECUTOR_OPTIONS)))
        builder.config(DRIVER_OPTIONS, _joined(quiet, ARROW_OPTIONS, settings.get(DRIVER_OPTIONS)))
        with without_worker_traces():
            return builder.getOrCreate()


@contextmanager
def without_worker_traces() -> Iterator[threading.Thread]:
    """A context in which processes are started. A thread copies their standard error, and that of their children, to
    that of this process, without the traces of workers whose reader has hung up. It ends with the last of these
    processes; a trace that is cut off then is left out.

    Spark starts some workers by pyspark's own daemon, which the setting for the daemon does not replace: those that
    look for data sources, and those that plan a read.
    """
    terminal, (readable, writable) = os.dup(STDERR_DESCRIPTOR), os.pipe()
    thread = threading.Thread(target=_pass_on, args=(readable, os.dup(terminal)), name="stderr of Spark", daemon=True)
    thread.start()
    os.dup2(writable, STDERR_DESCRIPTOR)
    os.close(writable)
    try:
        yield thread
    finally:
        os.dup2(terminal, STDERR_DESCRIPTOR)
        os.close(terminal)


def _pass_on(readable: int, terminal: int) -> None:
    with (
        open(readable, encoding="utf-8", errors="replace", newline="\n") as lines,
        open(terminal, "w", encoding="utf-8", errors="replace", newline="\n") as stream,
    ):
        quiet = BrokenPipeTraceFilter(stream)
        for line in lines:
            quiet.write(line)
            quiet.flush()


def _joined(*options: str | None) -> str:
    return " ".join(filter(None, options))


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process inside the `with`, and restore them after it.

    The launcher of Spark reads its variables only from the environment.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
