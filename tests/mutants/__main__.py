"""`python -m tests.mutants [--untold] [NUMBER…]`: plants each bug in a copy of the tree, and hunts it for 60 s of
machine time: with the runs that the catalogue says bring it out, or, untold, with those that `make sim` begins with.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.hunt import UNTOLD

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "protocol",
    "storage",
    "security",
    "replication",
    "kraft",
    "coordinator",
    "broker",
    "backup",
    "tables",
    "lake",
    "spark_jobs",
    "testing",
)
COPIED = ("moldau", *PACKAGES, "tests", "pyproject.toml")
"""What a hunt runs. Without `moldau`, whose links name the packages beside it, the copy would run the tree without the
bug."""
PATIENCE_S = 3000


def plant(mutant: Mutant, tree: Path) -> None:
    path = tree / mutant.path
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"mutant {mutant.number} does not apply to {mutant.path}"
    path.write_text(text.replace(mutant.old, mutant.new))


def copy(tree: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "conformance")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, symlinks=True, ignore=ignored)
        elif source.exists():
            shutil.copy(source, tree / name)


def environment_of(tree: Path) -> dict[str, str]:
    """The environment in which every import finds the copy."""
    return os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}


def hunt(mutant: Mutant, *, is_told: bool = True) -> tuple[str, float]:
    """What was found, empty if it survived, and how many seconds of machine time it took."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        tree = Path(directory)
        copy(tree)
        plant(mutant, tree)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "tests.mutants.hunt", str(mutant.number) if is_told else UNTOLD]
        finished = subprocess.run(
            command, cwd=tree, env=environment_of(tree), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if finished.returncode != 0 and not finished.stdout.strip():
        raise SystemExit(f"mutant {mutant.number}: {finished.stderr[-2000:]}")
    return finished.stdout.strip(), seconds


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--untold", action="store_true", help="hunt with the runs that `make sim` begins with")
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="the bugs to plant; all by default")
    options = parser.parse_args(arguments)
    unknown = set(options.numbers) - {each.number for each in MUTANTS}
    if unknown:
        parser.error(f"no planted bug has the number {', '.join(map(str, sorted(unknown)))}")
    survived = 0
    for mutant in MUTANTS:
        if options.numbers and mutant.number not in options.numbers:
            continue
        found, seconds = hunt(mutant, is_told=not options.untold)
        run, _, how = found.partition("\t")
        survived += not found
        verdict = f"killed   {seconds:5.1f} s  {run[:20]:20}" if found else f"SURVIVED {seconds:5.1f} s  {'':20}"
        print(f"{mutant.number:3} {verdict}  {mutant.name}\n{'':25}{how[:150]}", flush=True)
    print(f"{survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
