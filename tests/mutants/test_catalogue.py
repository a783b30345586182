"""Every planted bug still applies to the tree as it is: a mutant that cannot be planted proves nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import PACKAGES, ROOT, copy, environment_of
from tests.mutants.catalogue import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.number}")
def test_it_applies_and_is_still_python(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    assert text.count(mutant.old) == 1
    ast.parse(text.replace(mutant.old, mutant.new))


def test_a_number_is_one_bug() -> None:
    numbers = [mutant.number for mutant in MUTANTS]
    assert len(numbers) == len({*numbers})
    assert numbers[:22] == list(range(1, 23)), "the list that the simulator was asked to kill"


def test_a_hunt_runs_the_copy_that_has_the_bug(tmp_path: Path) -> None:
    copy(tmp_path)
    modules = ["tests.mutants", *(f"moldau.{package}" for package in PACKAGES)]
    program = f"import importlib\nfor name in {modules}: print(importlib.import_module(name).__file__)"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment_of(tmp_path), capture_output=True, text=True, check=True
    )
    assert all(path.startswith(str(tmp_path)) for path in ran.stdout.split()), ran.stdout
