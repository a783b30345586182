"""One instance of the shop application: a Java process with a state directory of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.conformance.outcome import Failed
from tests.conformance.streams.truth import DISTANCE_MS, WINDOW_MS
from tests.conformance.toolchain import Toolchain

STOP_S = 90.0
HEAP = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
REPLACED = "REPLACED "
"""The application's mark of an exception that ended its thread; another thread took over."""


class Instance:
    """`log` is what the application said in all its starts."""

    def __init__(self, name: str, toolchain: Toolchain, bootstrap: str, guarantee: str, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._state = directory / name
        arguments = (bootstrap, str(self._state), guarantee, str(WINDOW_MS), str(DISTANCE_MS))
        self._command = [*toolchain.java_command(*HEAP), "ShopApplication", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def check(self) -> None:
        """Raises `Failed` where it was started and has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise Failed(f"{self.name} ended with status {self._process.returncode}: {self.last_lines()}")

    def kill(self) -> None:
        """SIGKILL: its transaction stays open until its successor, or the coordinator, ends it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def forget(self) -> None:
        """Its state directory is lost: it comes back as an instance that the coordinators do not know."""
        shutil.rmtree(self._state, ignore_errors=True)

    def stop(self) -> None:
        """SIGTERM: it leaves the group and ends its transaction. Raises `Failed` where it does not end."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"{self.name} has not stopped {STOP_S:.0f} s after SIGTERM: {self.last_lines()}") from None

    def close(self) -> None:
        """Leaves nothing running."""
        if self._process is not None:
            self.kill()

    def replaced(self) -> list[str]:
        """The exceptions that ended threads."""
        said = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line.removeprefix(REPLACED) for line in said if line.startswith(REPLACED)]

    def last_lines(self, count: int = 8) -> str:
        return "\n".join(line[:300] for line in self.log.read_text(errors="replace").splitlines()[-count:])
