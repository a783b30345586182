"""Modules rewritten for the wheel: every way to name a module, and what must stay as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from building.hot_path import ROOT
from building.renaming import CannotRename, Renaming
from building.wheel_tree import MOVED, make_tree, modules_of

MODULES = frozenset(
    {"broker", "broker.cli", "broker.cli.serve", "storage", "storage.log", "protocol", "protocol.messages"}
)
RENAMING = Renaming(MODULES, "moldau")


def renamed(text: str) -> str:
    return RENAMING.applied_to(text, "module.py")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from storage.log import Log", "from moldau.storage.log import Log"),
        ("from storage import log as l", "from moldau.storage import log as l"),
        ("from . import log", "from . import log"),
        ("from os import path", "from os import path"),
        ("import os", "import os"),
        ("import storage", "from moldau import storage"),
        ("import storage.log", "import moldau.storage.log; from moldau import storage"),
        ("import os, storage.log as l", "import os; import moldau.storage.log as l"),
        ("if x:\n    from storage.log import (  # ž\n        Log,\n    )", None),
        ('a = "é", "broker.cli.serve"', 'a = "é", "moldau.broker.cli.serve"'),
        ("a = 'broker.cli'", "a = 'moldau.broker.cli'"),
        ('load(f"protocol.messages.{name}")', 'load(f"moldau.protocol.messages.{name}")'),
        ('import_module(f"protocol.{name}.x")', CannotRename),
        ('a = "protocol.messages."', 'a = "moldau.protocol.messages."'),
        ('a = ("-m", "broker.cli", "serve")', 'a = ("-m", "moldau.broker.cli", "serve")'),
        ('"""Run `python -m broker.cli`."""', '"""Run `python -m moldau.broker.cli`."""'),
        ('a = f"python -m broker.cli {b}"', 'a = f"python -m moldau.broker.cli {b}"'),
        ('import_module(f"{__package__}.{name}")', 'import_module(f"{__package__}.{name}")'),
        ("import_module(row.module)", "import_module(row.module)"),
    ],
)
def test_a_module_is_named_in_its_new_place(source: str, expected: str | type[CannotRename] | None) -> None:
    if expected is CannotRename:
        with pytest.raises(CannotRename):
            renamed(source)
        return
    wanted = source.replace("storage.log", "moldau.storage.log") if expected is None else expected
    assert renamed(source) == wanted


@pytest.mark.parametrize(
    "source",
    [
        'config.text("broker.rack")',
        'getLogger("moldau.broker")',
        'role = "broker"',
        'a = "storage.log is full"',
        'a = f"node-{broker.cli}"',
        "storage.log(x)",
        "# from storage.log import Log",
    ],
)
def test_what_names_no_module_stays(source: str) -> None:
    assert renamed(source) == source


@pytest.mark.parametrize(
    "source",
    [
        'import_module("protocol." + name)',
        'importlib.import_module("protocol.{}".format(name))',
        'find_spec(f"{package}.messages")',
        'a = f"broker.{name}"',
        'a = "broker." "cli"',
    ],
)
def test_what_may_name_a_module_and_cannot_be_rewritten_is_refused(source: str) -> None:
    with pytest.raises(CannotRename, match=r"module\.py, line 2"):
        renamed("\n" + source)


def test_every_line_keeps_its_number() -> None:
    source = "import os\nimport storage.log\n\nfrom storage import (\n    log,\n)\nx = 1\n"
    assert renamed(source).count("\n") == source.count("\n")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tree")
    make_tree(ROOT, directory)
    return directory


IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
import moldau
for module in pkgutil.walk_packages(moldau.__path__, "moldau."):
    if not module.name.endswith(("__main__", "directory_storage", "object_storage")) and "spark" not in module.name:
        import_module(module.name)
taken = sorted(name for name in sys.modules if name.partition(".")[0] in sys.argv[1:])
assert not taken, taken
from moldau.broker.release import KAFKA_VERSION
"""


def test_the_rewritten_product_imports_nothing_from_outside(tree: Path, tmp_path: Path) -> None:
    """Beside it lie packages with the names that its own had."""
    for package in MOVED:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('a package of the user')")
    code = f"import sys; sys.path[:0] = [{str(tree)!r}, {str(tmp_path)!r}]\n{IMPORT_ALL}"
    subprocess.run([sys.executable, "-I", "-c", code, *MOVED], check=True, cwd=tmp_path)


def test_the_rewritten_product_names_no_module_by_its_old_name(tree: Path) -> None:
    """Any string that is exactly the name of a module has been rewritten."""
    modules = {name for name in modules_of(ROOT) if "." in name}
    for path in tree.rglob("*.py"):
        text = path.read_text()
        for quote in "\"'":
            assert not [name for name in modules if f"{quote}{name}{quote}" in text], path
