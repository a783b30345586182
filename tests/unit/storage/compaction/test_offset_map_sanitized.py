"""The loops in C over random and damaged records, under the address sanitizer and that of undefined behaviour."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from building.hot_path import ROOT
from building.mypyc_build import c_compiler

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
INPUTS = 5_000


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which(c_compiler())
    program = tmp_path_factory.mktemp("fuzz") / "fuzz"
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    source = Path(__file__).with_name("offset_map_fuzz.c")
    include = f"-I{ROOT / 'storage/compaction'}"
    command = [compiler, "-g", "-O1", "-Wall", "-Wextra", *SANITIZERS, include, str(source), "-o", str(program)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this compiler has no sanitizers")
    return program


@pytest.mark.parametrize("seed", range(3))
def test_no_record_makes_it_read_or_write_outside(fuzz: Path, seed: int) -> None:
    done = subprocess.run([fuzz, str(seed), str(INPUTS)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
