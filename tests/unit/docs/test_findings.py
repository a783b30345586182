"""Each script of `findings/` has the form that their page describes; the script that runs all names changed ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.tidy.sources import ROOT, text_of, tracked

RUN_ALL = Path("findings/run_all.sh")
FINDINGS = [path for path in tracked("findings/*.sh") if path != RUN_ALL]


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_a_finding_has_its_form(path: Path) -> None:
    first, *lines = text_of(path).splitlines()
    assert first in ("#!/usr/bin/env bash", "#!/bin/bash")
    assert len([line for line in lines if line.startswith("# ")]) >= 3, (
        "the head says what, which version, which output"
    )
    for needed in ("set -euo pipefail", "mktemp -d", "trap "):
        assert needed in text_of(path), needed
    assert "pip install moldau" not in text_of(path), "a finding is about other software"


def test_those_that_changed_are_printed_with_what_they_saw(tmp_path: Path) -> None:
    for name, body in {
        "kept": "echo same",
        "other": "echo saw 7; exit 1",
        "absent": "echo no java >&2; exit 2",
    }.items():
        (tmp_path / f"{name}.sh").write_text(body)
    run = subprocess.run(["bash", ROOT / RUN_ALL, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        "absent: could not run (exit 2)",
        "    no java",
        "other: changed",
        "    saw 7",
        "1 of 3 findings are as recorded",
    ]
    (tmp_path / "other.sh").unlink()
    (tmp_path / "absent.sh").unlink()
    assert subprocess.run(["bash", ROOT / RUN_ALL, tmp_path], capture_output=True, check=False).returncode == 0
