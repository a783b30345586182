"""Records for the offset map, and both of its forms."""

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

from hypothesis import strategies as st

from building.hot_path import ROOT
from building.mypyc_build import EXTENSION_SUFFIX, c_compiler
from moldau.protocol.record_batch import HEADER_SIZE
from moldau.protocol.record_builder import NEXT_OFFSET, Record, build_batch

MODULE = "moldau.storage.compaction.offset_map"
SOURCE = ROOT / "storage/compaction/offset_map.py"
keys = st.none() | st.sampled_from([b"", b"a", b"b", b"eight by", b"c" * 200])
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
records = st.builds(
    Record,
    key=keys,
    value=st.none() | st.binary(max_size=5) | st.just(b"v" * 300),
    timestamp=st.integers(min_value=0, max_value=1 << 41),
    headers=headers,
    offset=st.just(NEXT_OFFSET),
)
runs = st.lists(records, min_size=1, max_size=12)


def encoded(chosen: list[Record], base_offset: int) -> tuple[bytes, bytes]:
    """A batch, and its records alone."""
    batch = build_batch(chosen, base_offset=base_offset)
    return batch, batch[HEADER_SIZE:]


@cache
def plain_form() -> ModuleType:
    """The module in Python, also where its compiled form is installed."""
    spec = importlib.util.spec_from_file_location(f"plain.{MODULE}", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compiled_form() -> ModuleType | None:
    """The module in C, compiled for these tests; None where this machine has no C compiler."""
    compiler = shutil.which(c_compiler())
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / f"offset_map{EXTENSION_SUFFIX}"
        include = f"-I{sysconfig.get_paths()['include']}"
        strict = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        command = [compiler, *strict, include, str(SOURCE.with_suffix(".c")), "-o", str(library)]
        subprocess.run(command, check=True)
        loader = ExtensionFileLoader(MODULE, str(library))
        spec = importlib.util.spec_from_loader(MODULE, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module


def forms() -> list[ModuleType]:
    """The forms of the module that this machine can run."""
    compiled = compiled_form()
    return [plain_form()] if compiled is None else [plain_form(), compiled]
