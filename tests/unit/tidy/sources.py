"""The files that the tidy tests read: those that git tracks or would track."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

from building.wheel_tree import BESIDE, LINKED

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = (*LINKED, *BESIDE)


@cache
def tracked(pattern: str) -> tuple[Path, ...]:
    """The files of the repository whose path matches a pattern of git's, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted({Path(name) for name in listed.stdout.splitlines() if (ROOT / name).exists()}))


def sources() -> tuple[Path, ...]:
    """Every module of the repository, tests and benchmarks among them."""
    return tracked("*.py")


@cache
def product() -> tuple[Path, ...]:
    """The modules that a wheel contains."""
    return tuple(path for path in sources() if path.parts[0] in PACKAGES)


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text("utf-8")


def tree_of(path: Path) -> ast.Module:
    return parsed(text_of(path))


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a module, parsed once for all tests of a process. The garbage collector would look at all earlier
    trees for each one: that took most of the time of these tests.
    """
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, in the order of `ast.walk`."""
    return tuple(ast.walk(tree_of(path)))


def module_name(path: Path) -> str:
    """`storage/log/log.py` → `moldau.storage.log.log`; a package's `__init__.py` is the package itself."""
    parts = path.with_suffix("").parts
    if parts[0] in LINKED:
        parts = ("moldau", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(module: str) -> Path:
    """The path of a module that is no package: `moldau.storage.log.log` → `storage/log/log.py`."""
    parts = module.split(".")
    if parts[0] == "moldau" and parts[1] in LINKED:
        del parts[0]
    return Path(*parts).with_suffix(".py")


REWRITE: Final = "MOLDAU_REWRITE" in os.environ
"""Whether lists of what offends are to be rewritten: `MOLDAU_REWRITE=1`. They only become shorter."""


def drop_lines(path: Path, names: Collection[str]) -> None:
    """Rewrite a module without the lines of a list or a table that name these."""
    keys = tuple(f'"{name}"' for name in names)
    lines = (ROOT / path).read_text("utf-8").splitlines(keepends=True)
    (ROOT / path).write_text("".join(line for line in lines if not line.lstrip().startswith(keys)), "utf-8")
