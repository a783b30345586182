"""The tree that a wheel installs: every folder of the product under `moldau/`, beside `pyspark_moldau/`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from building.hot_path import COMPILED_SOURCES
from building.mypyc_build import compile_tree
from building.renaming import Renaming

TARGET: Final = "moldau"
MOVED: Final = ("broker", "coordinator", "kraft", "protocol", "replication", "security", "spark_jobs", "storage")
"""Packages of the repository that a wheel has inside `moldau`, where they collide with none of a user's own."""
BESIDE: Final = ("pyspark_moldau",)
"""Spark looks for its sources in packages with such names at the top."""
GROUP: Final = f"{TARGET}.hot_path"


def make_tree(root: Path, tree: Path) -> None:
    """Write the sources in the form that they have in the wheel. Raises `CannotRename`."""
    renaming = Renaming(modules_of(root), TARGET)
    for package, place in (
        (TARGET, tree / TARGET),
        *((package, tree / TARGET / package) for package in MOVED),
        *((package, tree / package) for package in BESIDE),
    ):
        for path in files_of(root / package):
            copy = place / path.relative_to(root / package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py":
                copy.write_text(renaming.applied_to(path.read_text(encoding="utf-8"), str(path)), encoding="utf-8")
            else:
                shutil.copyfile(path, copy)


def compile_wheel(tree: Path) -> None:
    """Compile the hot path of a tree from `make_tree` beside its sources. Raises `CannotCompile`."""
    made = compile_tree(tree, [f"{TARGET}/{source}" for source in COMPILED_SOURCES], GROUP)
    assert all((tree / name).is_file() for name in made)


def modules_of(root: Path) -> frozenset[str]:
    """The dotted names of the modules that move, packages among them."""
    names = set()
    for package in MOVED:
        for path in files_of(root / package):
            if path.suffix == ".py":
                parts = path.relative_to(root).with_suffix("").parts
                names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return frozenset(names)


def files_of(package: Path) -> list[Path]:
    """The files of a package that belong into a wheel."""
    return sorted(
        path
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyc")
    )
