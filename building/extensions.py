"""The extension modules beside the sources of a checkout: which are there, which are stale, and their removal.

Python prefers an extension module to a source of the same name, even to a newer one. So a stale one must go before the
sources are run, and either all modules of the hot path are compiled or none: the code of one calls that of the others
without looking at what Python has loaded.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from building.hot_path import COMPILED_SOURCES, GROUP, PACKAGES, ROOT
from building.mypyc_build import EXTENSION_SUFFIX, extension_name, library_name

EXTENSIONS: Final = tuple(extension_name(source) for source in COMPILED_SOURCES)
"""Relative to the root of the checkout."""
LIBRARY: Final = library_name(GROUP)


def compiled_files(root: Path = ROOT) -> Iterator[Path]:
    """The extension modules of this Python, also those of modules that are gone or not in the list any more."""
    for package in PACKAGES:
        yield from sorted((root / package).rglob(f"*{EXTENSION_SUFFIX}"))


def stale_files(root: Path = ROOT) -> list[Path]:
    """Extension modules that Python would run in place of a newer source."""
    return [path for path in compiled_files(root) if is_stale(path)]


def is_stale(path: Path) -> bool:
    """Whether a source of an extension module is newer, or none is there. A module in C has a
    Python form as well; either may be the newer one."""
    name = path.name.removesuffix(EXTENSION_SUFFIX)
    sources = [path.with_name(name + suffix) for suffix in (".py", ".c", ".h")]
    changed = [source.stat().st_mtime for source in sources if source.exists()]
    return not changed or path.stat().st_mtime < max(changed)


def is_current(root: Path = ROOT) -> bool:
    """Whether all of the hot path is compiled, and nothing else, from the sources as they are."""
    expected = {root / name for name in EXTENSIONS}
    return (root / LIBRARY).exists() and set(compiled_files(root)) == expected and not stale_files(root)


def remove_compiled(root: Path = ROOT) -> None:
    """Plain Python from here on."""
    with _changing(root):
        _remove(root)


def remove_stale(root: Path = ROOT) -> str:
    """Before something that must run the sources as they are, with no minute to spare: the sentence to show."""
    stale = stale_files(root)
    if not stale:
        return "no extension module is older than its source"
    remove_compiled(root)
    return f"{stale[0].name} was older than its source: the hot path is plain Python until `make compiled`"


def install(directory: Path, root: Path = ROOT) -> None:
    """Put a finished set from a directory in the place of what is there.

    The library is there only while the set is whole: it goes first and comes last. A process that starts meanwhile
    finds no extension modules, or some that refuse to load for want of it, never a part of a set that runs. Where this
    is killed half-way the next call does all of it again.
    """
    with _changing(root):
        _remove(root)
        for name in (*EXTENSIONS, LIBRARY):
            aside = (root / name).with_suffix(".new")
            shutil.copyfile(directory / name, aside)
            os.replace(aside, root / name)


def _remove(root: Path) -> None:
    """The library goes first: without it what is left refuses to load, and never runs."""
    (root / LIBRARY).unlink(missing_ok=True)
    for path in compiled_files(root):
        path.unlink()


@contextmanager
def _changing(root: Path) -> Iterator[None]:
    """One process at a time changes what is there; the others wait for the few milliseconds that this takes."""
    lock = root / ".compiled" / "installing"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
