"""The extension modules beside the sources of a checkout: lists them, finds stale ones, installs and removes them.

Python prefers an extension module to a source of the same name, even to a newer one. So a stale extension module must
be removed before the sources are run. Either all modules of the hot path are compiled or none, because a compiled
module calls the compiled code of the others directly.
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
"""The paths of the extension modules of the hot path, relative to the root of the checkout."""
LIBRARY: Final = library_name(GROUP)


def compiled_files(root: Path = ROOT) -> Iterator[Path]:
    """The extension modules for this Python in the checkout, even if a source does not exist any more, or is not in the
    list of the hot path any more."""
    for package in PACKAGES:
        yield from sorted((root / "moldau" / package).rglob(f"*{EXTENSION_SUFFIX}"))


def stale_files(root: Path = ROOT) -> list[Path]:
    """The extension modules that Python would run instead of a newer source."""
    return [path for path in compiled_files(root) if is_stale(path)]


def is_stale(path: Path) -> bool:
    """Whether a source of an extension module is newer than the module, or no source exists. A module in C also has a
    Python source; both are compared.
    """
    name = path.name.removesuffix(EXTENSION_SUFFIX)
    sources = [path.with_name(name + suffix) for suffix in (".py", ".c", ".h")]
    changed = [source.stat().st_mtime for source in sources if source.exists()]
    return not changed or path.stat().st_mtime < max(changed)


def is_current(root: Path = ROOT) -> bool:
    """Whether exactly the modules of the hot path are compiled, and from the current sources."""
    expected = {root / name for name in EXTENSIONS}
    return (root / LIBRARY).exists() and set(compiled_files(root)) == expected and not stale_files(root)


def remove_compiled(root: Path = ROOT) -> None:
    """Remove all extension modules, so that Python runs the sources."""
    with _changing(root):
        _remove(root)


def remove_stale(root: Path = ROOT) -> str:
    """Remove all extension modules if one of them is older than its source. Nothing is compiled. Returns the line to
    print.
    """
    stale = stale_files(root)
    if not stale:
        return "no extension module is older than its source"
    remove_compiled(root)
    return f"{stale[0].name} was older than its source: the hot path is plain Python until `make compiled`"


def install(directory: Path, root: Path = ROOT) -> None:
    """Replace the installed extension modules by a finished set from a directory.

    The shared library is removed first and added last, so it exists only beside a complete set. A process that starts
    meanwhile finds no extension modules, or some that cannot be loaded without the library. If the installation is
    interrupted the next call repeats it.
    """
    with _changing(root):
        _remove(root)
        for name in (*EXTENSIONS, LIBRARY):
            aside = (root / name).with_suffix(".new")
            shutil.copyfile(directory / name, aside)
            os.replace(aside, root / name)


def _remove(root: Path) -> None:
    """Remove extension modules, the shared library first: without it the others cannot be loaded."""
    (root / LIBRARY).unlink(missing_ok=True)
    for path in compiled_files(root):
        path.unlink()


@contextmanager
def _changing(root: Path) -> Iterator[None]:
    """Hold the lock for changing the extension modules; other processes wait some milliseconds for it."""
    lock = root / ".compiled" / "installing"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
