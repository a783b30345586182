"""The tree of files that a wheel installs: the folders of the product as plain copies in `moldau/`, and
`pyspark_moldau/` beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from building.extensions import EXTENSIONS, LIBRARY, is_current
from building.hot_path import COMPILED_SOURCES, GROUP
from building.mypyc_build import compile_tree

TARGET: Final = "moldau"
LINKED: Final = (
    "backup",
    "broker",
    "coordinator",
    "kraft",
    "lake",
    "protocol",
    "replication",
    "security",
    "spark_jobs",
    "storage",
    "tables",
    "testing",
)
"""The folders at the root of the repository that are packages of `moldau`, which has a link to each of them."""
BESIDE: Final = ("pyspark_moldau",)
"""The packages that are installed beside `moldau`. Spark looks for data sources in top-level packages with such
names.
"""


def copy_tree(root: Path, tree: Path) -> None:
    """Copy the sources of the checkout at `root` to `tree`. The links in `moldau/` become folders."""
    for top in (TARGET, *BESIDE):
        for path in files_of(root / top):
            copy = tree / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def compile_wheel(root: Path, tree: Path) -> None:
    """Put the extension modules into `tree`, which `copy_tree` made. Current ones are copied from the checkout at
    `root`; otherwise they are compiled in `tree`. Raises `CannotCompile`."""
    if is_current(root):
        for name in (*EXTENSIONS, LIBRARY):
            shutil.copyfile(root / name, tree / name)
        return
    made = compile_tree(tree, COMPILED_SOURCES, GROUP)
    assert all((tree / name).is_file() for name in made)


def files_of(package: Path) -> list[Path]:
    """Return the files of a package that belong into a wheel, including the files of linked folders."""
    linked = [package / name for name in LINKED] if package.name == TARGET else []
    return sorted(
        path
        for folder in (package, *linked)
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyc")
    )
