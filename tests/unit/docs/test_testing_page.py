"""The programs of docs/testing.md run as they stand there, each in a directory of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from moldau.broker.cli.command import main
from moldau.testing import Cluster

TEXT = (Path(__file__).parents[3] / "docs/testing.md").read_text("utf-8")
PROGRAMS = {
    program.split(maxsplit=2)[1]: program
    for program in (dedent(each) for each in re.findall(r"```python\n(.*?)\n *```", TEXT, re.DOTALL))
}
"""By the name of the file, which stands in the first line."""


def test_every_program_has_a_name() -> None:
    assert len(PROGRAMS) == TEXT.count("```python") == 7
    assert all(name.endswith(".py") for name in PROGRAMS)


def make_capture(path: Path) -> None:
    """What the page's command makes, of a cluster with three orders."""
    with Cluster(memory=False) as kafka:
        assert kafka.directory is not None
        for amount in (3, 5, 7):
            kafka.produce("orders", json.dumps({"customer": "ada", "amount": amount}))
        line = next(each for each in TEXT.splitlines() if each.startswith("    moldau capture"))
        words = shlex.split(line.replace("/var/lib/moldau", str(kafka.directory / "node-1")))[1:]
        begin = words.index("--from")
        del words[begin : begin + 4]  # Tuesday was another day.
        words[1] = str(path)
        assert main(words) == 0


@pytest.mark.processes
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROGRAMS[name])
    if "tuesday.capture" in PROGRAMS[name]:
        make_capture(tmp_path / "tuesday.capture")
    command = [sys.executable, name]
    if name.startswith("test_"):
        command = [sys.executable, "-m", "pytest", "-p", "moldau.testing.plugin", "-p", "no:cacheprovider"]
    variables = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    if name == "asynchronous.py":
        assert done.stdout == "[b'three rolls']\n"
    else:
        assert re.search(r"\b[12] passed", done.stdout), done.stdout
