"""Which figures are old: the modules that they measure are no longer those of the commit that was measured.

The question is put to git when the page is computed, and the answer is kept with the figure: a reader without git, or
with a shallow clone, has what is kept.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Figure
from bench.imports import BEGINS
from bench.rows import ROWS
from building.hot_path import HOT_PATH
from building.hot_path import PACKAGES as PRODUCT

SPARK: Final = ("spark_jobs", "tables", "storage", "protocol")
OF_HOT_PATH: Final = ("crowd", "e2e", "hot", "librdkafka", "loads", "open", "request_latency", "tail", "tools")
"""The groups of `bench.groups` whose figures are those of the compiled modules."""
OF_SPARK: Final = ("spark", "spark_planning")
TABLES: Final = ("tables", "storage", "protocol")
GROUP_OF_ROW: Final = {row.name: row.group for row in ROWS}


class Run(NamedTuple):
    """What `made` says of a figure."""

    date: str
    commit: str
    form: str
    cpu: str


def run_of(figure: Figure) -> Run | None:
    """None for a figure that does not say where it is from."""
    words, _, cpu = figure.made.partition(" on ")
    parts = words.split()
    return Run(parts[0], parts[1], parts[2], cpu) if len(parts) == 3 else None


def measured_paths(figure: Figure) -> tuple[str, ...]:
    """The modules and packages that a figure measures; the whole product if no row says its group."""
    if figure.name.startswith(BEGINS):
        return ("requirements.lock",)
    group = GROUP_OF_ROW.get(figure.name, "")
    if group in OF_HOT_PATH:
        return HOT_PATH
    if group == "tables":
        return TABLES
    if group == "lake":
        return ("lake", *TABLES)
    return SPARK if group in OF_SPARK or figure.name.startswith("spark:") else PRODUCT


def aged(figures: Sequence[Figure], root: Path) -> list[Figure]:
    """The figures with the mark of those that are old in the tree at `root`. A mark stays as it is if git is
    missing, or if the clone does not have the commit.
    """

    @cache
    def differs(commit: str, paths: tuple[str, ...]) -> bool | None:
        try:
            done = subprocess.run(
                ["git", "diff", "--quiet", commit, "--", *paths], cwd=root, capture_output=True, check=False
            )
        except OSError:
            return None
        return {0: False, 1: True}.get(done.returncode)

    marked = []
    for figure in figures:
        run = run_of(figure)
        is_old = None if run is None else differs(run.commit, measured_paths(figure))
        marked.append(figure if is_old is None else figure._replace(is_old=is_old))
    return marked


def origin(figure: Figure) -> str:
    """The commit and the processor of a figure, in a cell of a table."""
    run = run_of(figure)
    if run is None:
        return "unknown"
    return f"{run.commit}, {run.cpu}{', **old**' if figure.is_old else ''}"
