"""Runs mypyc and the C compiler on a copy of the sources. The extension modules are made beside the copied sources.

A source is a Python module, which mypyc translates, or a module in C.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

NEEDED: Final = ("mypy", "setuptools")
EXTENSION_SUFFIX: Final = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
OUTPUT_LINES: Final = 40
"""The number of lines at the end of a failed step's output that are kept."""


class CannotCompile(Exception):
    """Raised if the extension modules cannot be built. The text gives the reason in one line."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output
        """The last lines that the failed step printed; empty if no step was tried."""


def c_compiler() -> str:
    """The name of the C compiler with which this Python builds extensions."""
    return str(sysconfig.get_config_var("CC") or "cc").split()[0]


def refuse_without_c_compiler() -> None:
    """Raise `CannotCompile` if this machine has no C compiler."""
    if shutil.which(c_compiler()) is None:
        raise CannotCompile(f"this machine has no C compiler ({c_compiler()})")


def library_name(group: str) -> str:
    """The path of the shared library of a mypyc group, relative to the root of the tree. A dot in the group's name
    separates a package.
    """
    return f"{group.replace('.', '/')}__mypyc{EXTENSION_SUFFIX}"


def extension_name(source: str) -> str:
    """The path of the extension module of a source. Both are relative to the root of the tree."""
    return source.rpartition(".")[0] + EXTENSION_SUFFIX


def compile_tree(tree: Path, sources: Sequence[str], group: str, constraints: Path | None = None) -> list[str]:
    """Compile the modules `sources` of a tree. Returns the files that were made, relative to the tree. Raises
    `CannotCompile`.

    If the environment lacks mypyc or setuptools, they are installed in a folder of the tree for this build, with the
    versions of `constraints`.
    """
    refuse_without_c_compiler()
    tools = tree / ".tools"
    if any(find_spec(module) is None for module in NEEDED):
        pins = ["-c", str(constraints)] if constraints is not None else []
        install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(tools), *pins, *NEEDED]
        run(install, tree, f"{' and '.join(NEEDED)} cannot be installed")
    run(["-c", RUN_MYPYC, str(tools), group, *sources], tree, "mypyc or the C compiler failed")
    return [*(extension_name(source) for source in sources), library_name(group)]


def run(arguments: Sequence[str], directory: Path, failure: str) -> None:
    """Run this Python with `arguments` in a directory, without showing its output. Raises `CannotCompile` with the text
    `failure` if it fails.
    """
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines()
        raise CannotCompile(f"{failure} ({error_line(lines)})", "\n".join(lines[-OUTPUT_LINES:]))


def error_line(lines: Sequence[str]) -> str:
    """The line of a failed step's output that gives the reason: the first line that contains "error:", otherwise the
    last one."""
    said = (line.strip() for line in lines)
    return next((line for line in said if "error:" in line.lower()), lines[-1].strip() if lines else "no output")


RUN_MYPYC: Final = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
tools, group, *sources = sys.argv[1:]
sys.path.insert(0, tools)
cores = os.cpu_count() or 1
sys.argv = ["setup.py", "-q", "build_ext", "--inplace", f"--parallel={cores}"]
from mypyc.build import mypycify
from setuptools import Extension, setup
from distutils.ccompiler import CCompiler  # of setuptools
def compile_side_by_side(
    compiler, sources, output_dir=None, macros=None, include_dirs=None, debug=0, extra_preargs=None,
    extra_postargs=None, depends=None,
):
    macros, objects, extra_postargs, pp_opts, build = compiler._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    cc_args = compiler._get_cc_args(pp_opts, debug, extra_preargs)
    def compile_one(name):
        compiler._compile(name, *build[name], cc_args, extra_postargs, pp_opts)
    largest_first = sorted(build, key=lambda name: -os.path.getsize(build[name][0]))
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(compile_one, largest_first))
    return objects
CCompiler.compile = compile_side_by_side
options = ["--follow-imports=silent", "--ignore-missing-imports", "--no-warn-unused-ignores"]
in_c = [source for source in sources if source.endswith(".c")]
modules = [source for source in sources if source not in in_c]
level = "1" if sys.platform == "linux" else "3"
extensions = mypycify([*options, *modules], group_name=group, opt_level=level, debug_level="0", multi_file=True)
for each in extensions:
    each.extra_compile_args.append("-fvisibility=hidden")
    each.include_dirs.append(os.path.join("build", *group.split(".")[:-1]))  # the header of a group in a package
for source in in_c:
    name = source.removesuffix(".c").replace("/", ".")
    extensions.append(Extension(name, [source], extra_compile_args=["-O3"]))
setup(name="moldau-hot-path", packages=[], ext_modules=extensions)
"""
"""The program that runs mypyc and the C compiler. Each module becomes a C file of its own, so that as many C compilers
run as there are cores. The library exports only functions that Python calls by name, so that calls between its files
are direct ones.

What mypyc makes is mostly calls of CPython: gcc's third level takes 1.7 times the CPU of its first, and makes nothing
that was measured faster (decision 8). clang was not measured, and keeps the third.
"""
