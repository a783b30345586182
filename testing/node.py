"""A node of a cluster: one process of `moldau serve`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from moldau.testing.lifeline import Lifeline

START_S: Final = 30.0
STOP_S: Final = 30.0
LOG_LINES: Final = 100
LOG_READ_MAX: Final = 256 * 1024
"""The number of bytes at the end of a log that are searched for its last lines."""
REMOVED_VARIABLES: Final = ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG", "PYTHONINSPECT")
"""The names of environment variables that nodes do not get, because they are for the interpreter of the test. They
would make a node slower, or end it.
"""
REMOVED_PREFIXES: Final = ("KAFKA_", "COVERAGE_PROCESS_")
"""The prefixes of environment variables that nodes do not get: a node reads variables that begin with KAFKA_ as
settings.
"""
COMMAND: Final = (sys.executable, "-P", "-m", "moldau", "serve", "--until-eof", "--greeting", "json")
"""The command that starts a node. With -P, modules of the working directory do not replace those of the standard
library.
"""
PORT_TAKEN: Final = "Address already in use"


class NodeFailed(Exception):
    """Raised if a node did not start, ended by itself, or did not stop. The text has the last lines of its log."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{log}" if log else message)
        self.is_port_taken = PORT_TAKEN in log


class Node:
    """A node of a cluster. Methods such as `kill` and `pause` return once they have taken effect."""

    def __init__(
        self,
        node_id: int,
        settings: Mapping[str, str],
        words: Sequence[str],
        variables: Mapping[str, str],
        lifeline: Lifeline,
        log_file: Path | None,
    ) -> None:
        """`words`: further arguments of `moldau serve`. `variables`: settings with secrets, as environment variables.
        `log_file`: the file of the node's log; None for a temporary file without a name.
        """
        self.id: Final = node_id
        self._settings = dict(settings)
        self._words = tuple(words)
        self._variables = dict(variables)
        self._lifeline = lifeline
        self._log: IO[bytes] = tempfile.TemporaryFile() if log_file is None else log_file.open("a+b")  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False
        self.greeting: dict[str, Any] = {}
        """The JSON that `moldau serve --greeting json` printed at the last start."""

    @property
    def pid(self) -> int:
        """The process id of the node. Raises `NodeFailed` if the node does not run."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the node's process exists, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The last 100 lines of the node's log, over all its starts."""
        return self.log_since(0)

    @property
    def log_size(self) -> int:
        """The size of the log (bytes), which is a position for `log_since`."""
        return os.fstat(self._log.fileno()).st_size

    def log_since(self, position: int, lines: int = LOG_LINES) -> str:
        """At most `lines` of the last lines of the log after a position (bytes)."""
        end = self.log_size
        begin = max(position, end - LOG_READ_MAX)
        text = os.pread(self._log.fileno(), end - begin, begin).decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def begin(self) -> None:
        """Start the process. The caller then calls `wait_until_serving`."""
        assert not self.is_running
        overrides = [word for name, value in self._settings.items() for word in ("--override", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*COMMAND, *self._words, *overrides],
            stdin=self._lifeline.input,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_variables() | self._variables,
            start_new_session=True,  # Ctrl-C is for the test, which then stops its nodes
        )
        self._is_paused = False
        self._lifeline.add_node(self._process.pid)

    def wait_until_serving(self, deadline: float) -> None:
        """Wait until the node serves clients, up to `deadline` (seconds, `time.monotonic`). Raises `NodeFailed`."""
        process = self._running()
        assert process.stdout is not None
        output = select.poll()  # `select.select` takes no descriptor above 1,023, and a test may have as many open.
        output.register(process.stdout, select.POLLIN)
        text = b""
        while not text.endswith(b"\n"):
            readable = output.poll(max(deadline - time.monotonic(), 0) * 1_000)
            part = os.read(process.stdout.fileno(), 65_536) if readable else b""
            text += part
            if not part:
                was_late = not readable
                self.kill()
                reason = "did not serve in time" if was_late else f"ended with status {process.returncode}"
                raise NodeFailed(f"node {self.id} {reason}", self.log)
        process.stdout.close()
        self.greeting = json.loads(text)

    def kill(self) -> None:
        """End the process at once, as `kill -9` does, even if it is paused."""
        if self._process is not None:
            self._process.kill()
            self._reap(None)

    def stop(self) -> None:
        """Stop the node cleanly: it hands over leadership, and flushes its logs. Raises `NodeFailed` if the node does
        not stop within 30 seconds; then the process is killed.
        """
        process = self._running()
        self.resume()
        process.terminate()
        try:
            self._reap(STOP_S)
        except subprocess.TimeoutExpired:
            log = self.log
            self.kill()
            raise NodeFailed(f"node {self.id} did not stop within {STOP_S:g} s", log) from None

    def pause(self) -> None:
        """Suspend the process (SIGSTOP). Its connections stay open, and it answers nothing until `resume`."""
        process = self._running()
        if self._is_paused:
            return  # The kernel tells of a stop once.
        self._lifeline.watch_node(process.pid)  # a held process does not see that its standard input ends
        process.send_signal(signal.SIGSTOP)
        self._is_paused = True
        with suppress(ChildProcessError):  # Another thread has seen the end of the process.
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)

    def resume(self) -> None:
        """Let a paused process continue."""
        self._running().send_signal(signal.SIGCONT)
        self._is_paused = False

    def restart(self) -> None:
        """Start the node again on the same ports. If it runs, it is stopped cleanly first. A node in memory starts
        without data.

        Raises `NodeFailed`.
        """
        if self.is_running:
            self.stop()
        self.begin()
        self.wait_until_serving(time.monotonic() + START_S)

    def close(self) -> None:
        """Kill the process, and close its log."""
        self.kill()
        self._log.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise NodeFailed(f"node {self.id} does not run", self.log)
        return self._process

    def _reap(self, timeout_s: float | None) -> None:
        process = self._process
        assert process is not None
        process.wait(timeout_s)
        self._lifeline.forget_node(process.pid)
        if process.stdout is not None:
            process.stdout.close()


def _variables() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in REMOVED_VARIABLES and not name.startswith(REMOVED_PREFIXES)
    }
