"""`tests/README.md` names every folder of tests, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.simulation.cluster.stages import KINDS
from tests.unit.tidy.sources import ROOT

TEXT: Final = (ROOT / "tests/README.md").read_text()


def folders(parent: str) -> set[str]:
    return {
        f"{parent}/{each.name}/"
        for each in Path(ROOT, parent).iterdir()
        if each.is_dir() and not each.name.startswith("__")
    }


def test_every_folder_of_tests_is_named() -> None:
    assert not [each for each in folders("tests") - {"tests/simulation/"} if each not in TEXT]
    assert not [each for each in folders("tests/simulation") if each not in TEXT]


def test_every_path_that_is_named_exists() -> None:
    paths = re.findall(r"`(tests/[\w/.-]+)`", TEXT)
    assert len(paths) > 20
    assert not [each for each in paths if not Path(ROOT, each).exists()]


def test_every_command_and_kind_of_run_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= targets
    assert set(re.findall(r"SEED=([a-z-]+)/", TEXT)) <= KINDS.keys()
