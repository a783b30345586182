"""A Java process of ours beside the brokers: started, killed and stopped again, with one log for all its starts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.outcome import Failed

STOP_S = 90.0


class JavaProcess:
    """`log` is what it said in all its starts."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def check(self) -> None:
        """Raises `Failed` if it was started and has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise Failed(f"{self.name} ended with status {self._process.returncode}: {self.last_lines()}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """SIGTERM. Raises `Failed` if it does not end."""
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

    def last_lines(self, count: int = 8) -> str:
        return "\n".join(line[:300] for line in self.log.read_text(errors="replace").splitlines()[-count:])
