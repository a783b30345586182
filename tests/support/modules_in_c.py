"""The two forms of a module that has one in C, for tests that hold them equal."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from building.hot_path import ROOT
from building.mypyc_build import EXTENSION_SUFFIX, c_compiler

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@cache
def plain_form(name: str) -> ModuleType:
    """The module in Python, also if its compiled form is installed. `name` is as in `storage.log.log`."""
    spec = importlib.util.spec_from_file_location(f"plain.moldau.{name}", source_of(name).with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compiled_form(name: str) -> ModuleType | None:
    """The module in C, compiled for these tests; None if this machine has no C compiler."""
    compiler = shutil.which(c_compiler())
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / f"{name.rpartition('.')[2]}{EXTENSION_SUFFIX}"
        include = f"-I{sysconfig.get_paths()['include']}"
        strict = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        command = [compiler, *strict, include, str(source_of(name).with_suffix(".c")), "-o", str(library)]
        subprocess.run(command, check=True)
        loader = ExtensionFileLoader(f"moldau.{name}", str(library))
        spec = importlib.util.spec_from_loader(f"moldau.{name}", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module


def forms_of(name: str) -> list[ModuleType]:
    """The forms of the module that this machine can run."""
    compiled = compiled_form(name)
    return [plain_form(name)] if compiled is None else [plain_form(name), compiled]


def sanitized(source: Path, includes: Path, directory: Path) -> Path:
    """Compile a program in C with sanitizers. Skips the test if this machine cannot."""
    compiler = shutil.which(c_compiler())
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    program = directory / source.stem
    command = [compiler, "-g", "-O1", "-Wall", "-Wextra", *SANITIZERS, f"-I{includes}", str(source), "-o", str(program)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this compiler has no sanitizers")
    return program


def source_of(name: str) -> Path:
    return ROOT / name.replace(".", "/")
