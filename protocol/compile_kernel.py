"""`python -m protocol.compile_kernel`: compile the record walk beside its source, where this machine can.

Python imports the extension module in place of the source of the same name. Without a C compiler or mypyc it runs the
source, more slowly and with the same results; one printed line says which of the two it will be. The compiled files
belong to this installation and are never committed. `--remove` removes them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).parent
KERNEL = PACKAGE / "record_walk.py"
NEEDED = ("mypy", "setuptools")
EXTENSION_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def main(arguments: list[str]) -> str:
    """Compile where that is needed and possible; the sentence to show."""
    if "--remove" in arguments:
        remove_compiled()
        return "the record walk is plain Python"
    if is_current():
        return "the record walk is compiled already"
    remove_compiled()
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"the record walk stays plain Python: no C compiler ({compiler}) on this machine"
    with tempfile.TemporaryDirectory(prefix="moldau-kernel-") as name:
        reason = compile_in(Path(name))
    if reason is not None:
        return f"the record walk stays plain Python: {reason}"
    return "the record walk is compiled"


def compiled_files() -> Iterator[Path]:
    """The extension module of this interpreter, and mypyc's library that it loads."""
    for stem in (KERNEL.stem, f"{KERNEL.stem}__mypyc"):
        path = PACKAGE / f"{stem}{EXTENSION_SUFFIX}"
        if path.exists():
            yield path


def is_current() -> bool:
    """Whether there is an extension module, not older than its source."""
    return bool(list(compiled_files())) and not stale_files()


def stale_files() -> list[Path]:
    """The extension modules that are older than the source, and would be run instead of it."""
    return [path for path in compiled_files() if path.stat().st_mtime < KERNEL.stat().st_mtime]


def remove_compiled() -> None:
    """Remove the extension module, so that the source runs."""
    for path in compiled_files():
        path.unlink()


def compile_in(directory: Path) -> str | None:
    """Compile a copy of the kernel with what it imports and bring the extension here; the reason where that fails."""
    copy = directory / PACKAGE.name
    copy.mkdir()
    for source in ("__init__.py", "primitives.py", KERNEL.name):
        shutil.copy2(PACKAGE / source, copy)
    tools = directory / "tools"
    if any(find_spec(module) is None for module in NEEDED):
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(tools), *NEEDED]
        if not succeeds(install, directory):
            return f"{' and '.join(NEEDED)} could not be installed"
    if not succeeds(["-c", RUN_MYPYC, str(tools), f"{PACKAGE.name}/{KERNEL.name}"], directory):
        return f"mypyc failed; `python -m mypyc {KERNEL}` shows why"
    for built in copy.glob(f"*{EXTENSION_SUFFIX}"):
        shutil.copyfile(built, PACKAGE / built.name)
    if not succeeds(["-c", CHECK], PACKAGE.parent):
        remove_compiled()
        return "the extension cannot be loaded"
    return None


def succeeds(arguments: list[str], directory: Path) -> bool:
    """Run this Python with `arguments` in a directory, quietly."""
    return subprocess.run([sys.executable, *arguments], cwd=directory, capture_output=True).returncode == 0


RUN_MYPYC = """
import runpy, sys
tools, source = sys.argv[1:]
sys.path.insert(0, tools)
sys.argv = ["mypyc", source]
runpy.run_module("mypyc", run_name="__main__")
"""
CHECK = """
import protocol.record_walk as kernel
assert not kernel.__file__.endswith(".py")
assert kernel.walk_records(bytes.fromhex("0e00000002610000"), 0, 8, 1) == (0, 0, 0)
"""

if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
