"""A broker as a process of its own: started, killed, asked to stop, and what its log says about each start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVES = "serves"
UNCLEAN = "after an unclean stop"
START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 60.0


class Broken(Exception):
    """A process did what no fault of ours explains: it ended, or did not."""


@dataclass(frozen=True, slots=True)
class Started:
    """One start."""

    seconds: float
    was_unclean: bool
    complaints: tuple[str, ...]
    """Its log from WARNING up until it served."""


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Node:
    """One node, broker and controller in one; `directory` holds its data and its log.

    `extra` are overrides, `prefix` is a command that runs the node's, `variables` are added to its environment.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        controller_port: int,
        extra: Sequence[str] = (),
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
        overrides = [word for each in (listeners, *extra) for word in ("--override", each)]
        command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(self.data), *overrides]
        self._command = [*prefix, *command]
        self._variables = {"PYTHONPATH": str(ROOT), **(variables or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._log_position = 0

    def start(self) -> Started:
        """Until it says that it serves. Raises `Broken`."""
        self.launch()
        return self.await_serving()

    def launch(self) -> None:
        """Without waiting for it."""
        self._began = time.monotonic()
        self._log_position = self.log.stat().st_size if self.log.exists() else 0
        environment = os.environ | self._variables
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def await_serving(self) -> Started:
        """Raises `Broken`."""
        process = self._process
        assert process is not None
        while SERVES not in (said := self._said_since(self._log_position)):
            if process.poll() is not None:
                raise Broken(f"ended at start with status {process.returncode}: {said[-600:]}")
            if time.monotonic() - self._began > START_PATIENCE_S:
                raise Broken(f"does not serve after {START_PATIENCE_S:.0f} s: {said[-600:]}")
            time.sleep(0.01)
        complaints = [line for line in said.splitlines() if any(f" {level} " in line for level in _LEVELS)]
        return Started(time.monotonic() - self._began, UNCLEAN in said, tuple(complaints))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        process = self._running()
        process.kill()
        process.wait()

    def terminate(self) -> float:
        """SIGTERM; how long it took to end with status 0. Raises `Broken`."""
        process = self._running()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Broken(f"not stopped {STOP_PATIENCE_S:.0f} s after SIGTERM") from None
        if status != 0:
            raise Broken(f"stopped with status {status}: {self._said_since(0)[-600:]}")
        return time.monotonic() - began

    def close(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        if self._process.poll() is not None:
            raise Broken(f"ended by itself with status {self._process.returncode}: {self._said_since(0)[-600:]}")
        return self._process

    def _said_since(self, position: int) -> str:
        return self.log.read_bytes()[position:].decode(errors="replace")


_LEVELS = ("WARNING", "ERROR", "CRITICAL")
