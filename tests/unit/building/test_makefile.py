"""What `make` leaves behind if a step fails: the next `make run` has to begin where this one failed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITHOUT_ENSUREPIP = """\
#!/bin/sh
case "$*" in *venv*) mkdir -p .venv/bin; touch .venv/bin/python; echo "ensurepip is not available"; exit 1;; esac
"""
"""Stands in for the Python of a Debian without python3-venv, which leaves an environment without pip."""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_an_environment_that_could_not_be_made_is_made_anew(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "python"
    python.write_text(WITHOUT_ENSUREPIP)
    python.chmod(0o755)
    for _ in range(2):
        done = subprocess.run(
            ["make", ".venv/bin/python", "PYTHON=./python"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode and "ensurepip is not available" in done.stdout
        assert not (tmp_path / ".venv/bin/python").exists()
