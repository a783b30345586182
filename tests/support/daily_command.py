"""The daily commands against a running cluster: what they say, and with which exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any, NamedTuple


class Said(NamedTuple):
    """What a command said. `lines` and `errors` are those of its outputs."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The objects of `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def failure(self) -> str:
        """The one sentence of a failure; what else there is fails."""
        assert self.status and "Traceback" not in self.err, self.err
        (line,) = self.err.splitlines()
        assert line.startswith("moldau: ")
        return line.removeprefix("moldau: ")


class DailyCommand:
    """Runs `moldau` against one cluster, each command as a process."""

    def __init__(self, bootstrap: str, variables: Mapping[str, str] | None = None) -> None:
        self._variables = {**os.environ, "MOLDAU_BOOTSTRAP_SERVER": bootstrap, **(variables or {})}

    def __call__(
        self, *words: str, given: str | bytes = b"", timeout_s: float = 60, stdout: int | IO[str] = subprocess.PIPE
    ) -> Said:
        """Run a command, with `given` as its standard input, its output to `stdout`."""
        command = [sys.executable, "-m", "moldau", *words]
        sent = given.encode() if isinstance(given, str) else given
        done = subprocess.run(
            command, input=sent, stdout=stdout, stderr=subprocess.PIPE, env=self._variables, timeout=timeout_s
        )
        return Said(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """The rows of a command that succeeds."""
        said = self(*words, "--json")
        assert said.status == 0, f"status {said.status}: {said.err}"
        return said.rows

    def done(self, *words: str, given: str | bytes = b"") -> str:
        """What a command that succeeds prints."""
        said = self(*words, given=given)
        assert said.status == 0, f"status {said.status}: {said.err}"
        return said.out


def properties_text(settings: Mapping[str, str]) -> str:
    """Settings of a client as a properties file."""
    return "".join(f"{name}={escaped(value)}\n" for name, value in settings.items())


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
