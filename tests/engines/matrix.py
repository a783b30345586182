"""`python -m tests.engines.matrix ENVIRONMENT FILE` runs the paths of one environment and writes the cells as JSON;
`python -m tests.engines.matrix` makes the environments, runs them and writes docs/engines.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.engines.environments import CONNECT, DELTA, ENVIRONMENTS, JARS, READERS, RUNS, jar_name

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "engines.md"
HOME: Final = ROOT / "build" / "engines"
SHOWN_MAX: Final = 110
DRIVER_MEMORY: Final = "3g"
"""With 1 GB, Spark 4.3 ran out of memory at the value of 100 MiB."""
EQUAL, NONE = "=", "—"
Cells = dict[str, dict[str, str]]
"""By path, then by trap: `=`, `—`, `changed: ...` or `refused: ...`."""


def cell(run: Any, path: Any) -> str:
    """What a path makes of a trap."""
    from tests.engines.paths import NotApplicable
    from tests.engines.traps import plain

    try:
        got = path(run)
        rows = sorted(zip(got.column("i").to_pylist(), plain(got.column("x")), strict=True), key=lambda row: row[0])
    except NotApplicable:
        return NONE
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt):
            raise
        return f"refused: {type(problem).__name__}: {shortened(str(problem))}"
    truth = list(enumerate(plain(run.table.column("x"))))
    if rows == truth:
        return EQUAL
    if len(rows) != len(truth):
        return f"changed: {len(rows)} rows of {len(truth)}"
    was, now = next((a[1], b[1]) for a, b in zip(truth, rows, strict=True) if a != b)
    return f"changed: {shortened(repr(was))} is {shortened(repr(now))}"


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else f"{line[: SHOWN_MAX - 1]}…"


@contextmanager
def session(environment: str) -> Iterator[Any]:
    """A session of Spark, if the environment has it."""
    if not environment.startswith("spark"):
        yield None
        return
    if environment.endswith(CONNECT):
        with connected() as spark:
            yield spark
        return
    from moldau.spark_jobs.session import local_session

    jars = ",".join(str(HOME / "jars" / jar_name(each)) for each in JARS.get(environment, ()))
    settings = {"spark.driver.memory": DRIVER_MEMORY, **({"spark.jars": jars, **DELTA} if jars else {})}
    with local_session("engines", master="local[1]", settings=settings) as spark:
        yield spark


@contextmanager
def connected() -> Iterator[Any]:
    """A session of Spark Connect, with a server of its own."""
    from pyspark.sql import SparkSession

    from moldau.spark_jobs.java_runtime import find_java, home_for_spark
    from moldau.spark_jobs.session import variables_set

    with home_for_spark(find_java(os.environ)) as home, variables_set({"JAVA_HOME": str(home)}):
        spark = SparkSession.builder.remote("local[1]").getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            yield spark
        finally:
            spark.stop()


def cells_of(paths: Mapping[str, Any], environment: str = "newest") -> Cells:
    """The cells of some paths."""
    from tests.engines.paths import Run
    from tests.engines.traps import traps

    found: Cells = {}
    with tempfile.TemporaryDirectory() as directory, session(environment) as spark, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, trap in enumerate(traps(Path(directory))):
            for index, (name, path) in enumerate(paths.items()):
                files = Path(directory) / f"{number}-{index}"
                files.mkdir()
                found.setdefault(name, {})[trap.title] = cell(Run(trap, files, spark), path)
                print(f"{trap.title}: {name}: {found[name][trap.title]}", file=sys.stderr)
    return found


def run_environment(name: str, output: Path) -> None:
    from tests.engines.paths import PATHS

    titles = PATHS[name]
    found = cells_of(titles, name)
    suffix = f" {name.removesuffix(CONNECT).partition('-')[2]}" if name.startswith("spark") else ""
    output.write_text(json.dumps({path.replace("Spark,", f"Spark{suffix},"): row for path, row in found.items()}))


def made(name: str) -> Path:
    """The Python of an environment, which is made if it is not there. Raises CalledProcessError."""
    home = HOME / name
    wanted = " ".join((*ENVIRONMENTS[name], *READERS))
    mark = home / "installed"
    if not mark.exists() or mark.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted.split()], check=True)
        mark.write_text(wanted)
    for jar in JARS.get(name, ()):
        if not (HOME / "jars" / jar_name(jar)).exists():
            goal = ("dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={HOME / 'jars'}")
            subprocess.run(["mvn", "-q", "-B", *goal], check=True)
    return home / "bin" / "python"


def run_all(names: Iterable[str]) -> tuple[Cells, list[str]]:
    """The cells of the environments, and those that could not be run."""
    found: Cells = {}
    failed: list[str] = []
    for name in names:
        output = HOME / f"{name}.json"
        try:
            python = made(name.removesuffix(CONNECT))
            variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
            variables["SPARK_LOCAL_IP"] = "127.0.0.1"
            command = [str(python), "-m", "tests.engines.matrix", name, str(output)]
            subprocess.run(command, check=True, cwd=ROOT, env=variables)
        except subprocess.CalledProcessError as problem:
            failed.append(f"{name}: {shortened(str(problem))}")
        if output.exists():
            found |= json.loads(output.read_text())
    return found, failed


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the matrix of docs/engines.md, in about ten minutes.")
    parser.add_argument("environment", nargs="?", help="fill the cells of this one alone; it runs with its own Python")
    parser.add_argument("output", nargs="?", type=Path, help="the JSON file for the cells of the environment")
    given = parser.parse_args()
    if given.output is not None:
        run_environment(given.environment, given.output)
        return
    if given.environment is not None:
        parser.error("give the file for the cells of the environment too")
    from tests.engines.page import page

    HOME.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(*run_all(RUNS)))


if __name__ == "__main__":
    main()
