"""The compiled form comes and goes without changing what is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from protocol import compile_kernel

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of the package, with nothing compiled in it."""
    shutil.copytree(compile_kernel.PACKAGE, tmp_path / "protocol", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def run(tree: Path, **environment: str) -> str:
    command = [sys.executable, "-m", "protocol.compile_kernel"]
    return subprocess.check_output(command, cwd=tree, env=os.environ | environment, text=True)


def test_without_a_compiler_it_says_so_in_one_line(tree: Path) -> None:
    said = run(tree, PATH=str(tree))
    assert said.startswith("the record walk stays plain Python: no C compiler") and said.count("\n") == 1


def test_an_extension_older_than_the_source_is_removed(tree: Path) -> None:
    """Python would run it in the place of the source."""
    stale = tree / "protocol" / f"record_walk{SUFFIX}"
    stale.write_bytes(b"")
    os.utime(stale, (1, 1))
    run(tree, PATH=str(tree))
    assert not stale.exists()


def test_an_extension_newer_than_the_source_is_left_alone(tree: Path) -> None:
    current = tree / "protocol" / f"record_walk{SUFFIX}"
    current.write_bytes(b"")
    assert run(tree, PATH=str(tree)) == "the record walk is compiled already\n"
    assert current.exists()
