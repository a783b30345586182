"""`tests/README.md` names every folder of tests, and nothing that is not there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from tests.simulation.cluster.stages import KINDS
from tests.unit.tidy.sources import ROOT

TEXT: Final = (ROOT / "tests/README.md").read_text()


def folders(parent: str) -> set[str]:
    return {
        f"{parent}/{each.name}/"
        for each in Path(ROOT, parent).iterdir()
        if each.is_dir() and any(not child.name.startswith("__pycache__") for child in each.iterdir())
        if not each.name.startswith("__")
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


def test_what_make_check_leaves_out_is_said_in_the_same_words_everywhere() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r'pytest .*-m "([^"]+)" (.*)', makefile)
    assert len(commands) == 2 and {marks for marks, _ in commands} == {"not processes and not slow"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    left_out = {each.partition(":")[0] for each in settings["markers"] if "`make check` leaves it out" in each}
    assert left_out == {"processes", "slow"}
    ((offered,), (written,)) = (
        re.findall(r"^check: .*## (.*)", makefile, re.MULTILINE),
        re.findall(r"^    make check +(.*)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE),
    )
    assert offered.partition("; ")[0] in written and "without real processes and slow walks" in offered


def test_the_two_processes_of_make_check_run_every_unit_test_once() -> None:
    one, other = re.findall(r'pytest .*-m "[^"]+" (.*)', (ROOT / "Makefile").read_text())
    ignored = set(re.findall(r"--ignore (\S+)", other))
    assert other.split()[0] == "tests/unit" and set(one.split()) == ignored | {"tests/transcripts"}


def test_make_test_leaves_nothing_out() -> None:
    (command,) = re.findall(r"^test:.*\n\t(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "-m pytest -n 2" in command and command.endswith("-n 2") and " -m" not in options["addopts"]
