"""Compiles the hot path in a separate folder, so that a process that runs meanwhile never loads an incomplete set of
extension modules.

```
.compiled/lock     held by the one process that compiles for this checkout
.compiled/work-*   a copy of the sources, being compiled
.compiled/ready    a finished set: a rename gives it this name, once it is complete and was loaded in a test
.compiled/failed   its first line is the digest of sources that cannot be compiled, the rest the reason
.compiled/log      what the last compile that failed, or that ran in the background, printed
```

A finished set waits in `ready` until the next start installs it (`extensions.install`). If the sources have changed by
then, that start deletes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from building.extensions import EXTENSIONS, LIBRARY, install, is_current, remove_compiled
from building.hot_path import COMPILED_SOURCES, FOR_TABLES, GROUP, NEEDED_BY_TABLES, ROOT, digest_of
from building.mypyc_build import (
    EXTENSION_SUFFIX,
    CannotCompile,
    compile_tree,
    refuse_without_c_compiler,
    run,
)
from building.wheel_tree import copy_tree

DIGEST: Final = "digest"
NICENESS: Final = 19
"""The niceness of a compile in the background, which uses only CPU time that no other process wants."""
LOG: Final = ".compiled/log"
COMPILED: Final = "the hot path is compiled"
PLAIN_PYTHON: Final = "the hot path runs as plain Python"


class AlreadyBuilding(Exception):
    """Raised if another process is compiling for this checkout."""


class BackgroundBuild:
    """Compiles the hot path of a checkout in its folder `.compiled`."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._folder = root / ".compiled"
        self._ready = self._folder / "ready"
        self._failed = self._folder / "failed"

    def compile_now(self) -> str:
        """Compile the hot path of this checkout now, if the machine can, and install it. Returns the line to print."""
        with self._locked(waits=True):
            if is_current(self._root):
                return f"{COMPILED} already"
            remove_compiled(self._root)
            try:
                if not self._has_ready():
                    sys.stderr.write("compiling the hot path, once for these sources: one to three minutes\n")
                    self._compile()
            except CannotCompile as problem:
                return self._told_failure(problem)
            return self._install()

    def begin(self) -> str:
        """Prepare a start without delaying it: install a finished set, or start a compile for a later start.

        Returns the line to print; empty if the compiled modules are current. The compile is a process of the lowest
        priority in its own session, so that Ctrl-C in this terminal does not end it.
        """
        if is_current(self._root):
            return ""
        try:
            # The process that has finished a set still holds the lock while it deletes what it worked on.
            with self._locked(waits=self._is_ready()):
                remove_compiled(self._root)
                if self._has_ready():
                    return self._install()
                try:
                    self._refuse_known_failure()
                    refuse_without_c_compiler()
                except CannotCompile as problem:
                    return f"{PLAIN_PYTHON}: {problem}"
                log = self._root / LOG
                with log.open("wb") as output:
                    subprocess.Popen(
                        [sys.executable, "-m", "building", "--aside"],
                        cwd=self._root,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
        except AlreadyBuilding:
            remove_compiled(self._root)
        return f"{PLAIN_PYTHON} this time: it is being compiled in the background for the next start (log: {LOG})"

    def outlook(self) -> str:
        """Return a line about compiled modules that are ready, or are being made, for the next start; empty if there
        are none. Changes nothing."""
        if not self._folder.is_dir() or is_current(self._root):
            return ""
        if self._is_ready():
            return "compiled modules are ready: the next start takes them"
        try:
            with self._locked(waits=False):
                return ""
        except AlreadyBuilding:
            return f"compiled modules are being made in the background for a later start (log: {LOG})"

    def compile_aside(self) -> str:
        """Compile as the background process that `begin` starts, and leave a finished set in `ready`. Returns the line
        to print.
        """
        os.nice(NICENESS)
        with self._locked(waits=True):
            if self._has_ready() or is_current(self._root):
                return f"{COMPILED} already"
            try:
                self._compile()
            except CannotCompile as problem:
                return self._told_failure(problem)
        return f"{COMPILED}; the next start takes it"

    def _told_failure(self, problem: CannotCompile) -> str:
        """Remember that a step failed, so that later starts do not repeat it, and write its output to the log. Returns
        the line to print.
        """
        if not problem.output:  # Nothing was tried: the machine has no compiler, and may have one at the next start.
            return f"{PLAIN_PYTHON}: {problem}"
        self._failed.write_text(f"{digest_of(self._root)}\n{problem}\n")
        (self._root / LOG).write_text(f"{problem}\n{problem.output}\n")
        return f"{PLAIN_PYTHON}: {problem} (log: {LOG})"

    def _compile(self) -> None:
        """Copy the sources, compile the copy, load the result in a test, and rename it to `ready`. Raises
        `CannotCompile`.
        """
        for left in self._folder.glob("work-*"):
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=self._folder))
        try:
            copy_tree(self._root, work)
            digest = digest_of(work)
            compile_tree(work, COMPILED_SOURCES, GROUP, self._root / "requirements.lock")
            run(
                ["-c", LOAD_TEST, ",".join(NEEDED_BY_TABLES), ",".join(FOR_TABLES), *COMPILED_SOURCES], work, NOT_LOADED
            )
            finished = work / "finished"
            for name in (*EXTENSIONS, LIBRARY):
                (finished / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(work / name, finished / name)
            (finished / DIGEST).write_text(self._signature(digest))
            shutil.rmtree(self._ready, ignore_errors=True)
            finished.rename(self._ready)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _is_ready(self) -> bool:
        """Whether the folder `ready` contains extension modules compiled from the current sources."""
        try:
            return (self._ready / DIGEST).read_text() == self._signature(digest_of(self._root))
        except OSError:
            return False

    def _has_ready(self) -> bool:
        """Whether the folder `ready` contains extension modules compiled from the current sources. If not, the folder
        is deleted.
        """
        if self._is_ready():
            return True
        shutil.rmtree(self._ready, ignore_errors=True)
        return False

    def _install(self) -> str:
        if not self._has_ready():
            return f"{PLAIN_PYTHON}: the sources changed while they were compiled"
        install(self._ready, self._root)
        shutil.rmtree(self._ready)
        self._failed.unlink(missing_ok=True)
        return COMPILED

    def _refuse_known_failure(self) -> None:
        """Raise `CannotCompile` if a compilation of these sources has failed before."""
        try:
            digest, reason, *_ = self._failed.read_text().splitlines()
        except (OSError, ValueError):
            return
        if digest == digest_of(self._root):
            raise CannotCompile(f"{reason} (log: {LOG}; `make compiled` tries again)")

    def _signature(self, digest: str) -> str:
        return f"{EXTENSION_SUFFIX}\n{digest}\n"

    @contextmanager
    def _locked(self, *, waits: bool) -> Iterator[None]:
        """Hold the lock of the checkout. Raises `AlreadyBuilding` if another process holds it and this one does not
        wait. The system releases the lock when its process ends.
        """
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                raise AlreadyBuilding from None
            yield


NOT_LOADED: Final = "the extension modules cannot be loaded"
LOAD_TEST: Final = """
import sys
from importlib import import_module
from importlib.util import find_spec
needed, for_tables, *sources = sys.argv[1:]
absent = {package for package in needed.split(",") if find_spec(package) is None}
for source in sources:
    name = source.rpartition(".")[0].replace("/", ".")
    assert not find_spec(name).origin.endswith(".py"), name
    try:
        import_module(name)
    except ModuleNotFoundError as missing:
        if source not in for_tables.split(",") or missing.name not in absent:
            raise
from moldau.protocol.record_batch import walk_records
assert walk_records(bytes.fromhex("0e00000002610000"), 0, 8, 1) == (0, 0, 0)
"""
"""The program that loads each extension module of a copy. Modules for tables are loaded only up to the import of a
package that this environment lacks; if it has the packages of the extra `arrow`, they are loaded completely.
"""
