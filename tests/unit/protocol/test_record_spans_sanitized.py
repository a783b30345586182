"""The loops in C over random and damaged records, under the address sanitizer and that of undefined behaviour."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from building.hot_path import ROOT
from tests.support.modules_in_c import sanitized

INPUTS = 5_000


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).with_name("record_spans_fuzz.c")
    return sanitized(source, ROOT / "protocol", tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("seed", range(3))
def test_no_record_makes_it_read_or_write_outside(fuzz: Path, seed: int) -> None:
    done = subprocess.run([fuzz, str(seed), str(INPUTS)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
