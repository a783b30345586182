"""A module of the product has one name, in the tree and in the wheel: `moldau.storage.log.log`.

Python would also find it as `storage.log.log`, because the folders stand at the top of the repository; then its classes
would exist twice.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Final

import pytest

from building.wheel_tree import LINKED
from tests.unit.tidy.import_graph import imports_in
from tests.unit.tidy.sources import ROOT, sources, text_of, tracked, tree_of

TOPS: Final = "|".join(LINKED)
BARE: Final = re.compile(
    rf"^\s*(?:>>> |\.\.\. )?(?:from (?:{TOPS})(?:\.\w+)* import\b|import (?:{TOPS})\b(?!\.?\w*,))"
    rf"|-m (?:{TOPS})\b"
    rf'|"-m", "(?:{TOPS})\b',
    re.MULTILINE,
)
"""Imports and commands in texts: pages, scripts, and programs that a test writes."""
MAY_IMPORT: Final = re.compile(rf"(?:\bfrom|\bimport|,)\s+(?:{TOPS})\b")
"""What stands in every module that imports by a bare name; few others are parsed."""
TEXTS: Final = ("*.md", "*.yml", "*.toml", "*.sh", "Makefile", "*Dockerfile", ".ci/run")
STRANGERS: Final = frozenset({Path("tests/wheel/test_wheel.py")})
"""Programs of a user with packages of these names, which are not ours."""


def bare_imports(tree: ast.Module) -> list[int]:
    """The lines that import a module of the product by another name than its own."""
    found = []
    for node in imports_in(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            names = [node.module or ""] if not node.level else []
        found += [node.lineno for name in names if name.partition(".")[0] in LINKED]
    return found


def bare_texts(text: str) -> list[str]:
    return [found[0].strip() for found in BARE.finditer(text)]


def test_no_module_imports_by_a_bare_name() -> None:
    paths = [path for path in sources() if MAY_IMPORT.search(text_of(path))]
    found = [f"{path}:{line}" for path in paths for line in bare_imports(tree_of(path))]
    assert not found, found


def test_no_text_names_a_module_without_its_package() -> None:
    paths = [*sources(), *(path for pattern in TEXTS for path in tracked(pattern))]
    mine = Path(__file__).relative_to(ROOT)
    found = [
        f"{path}: {each}" for path in paths if path not in {*STRANGERS, mine} for each in bare_texts(text_of(path))
    ]
    assert not found, found


@pytest.mark.parametrize(
    "planted", ["from storage.log.log import Log", "import protocol", "python -m broker.cli serve", '["-m", "kraft"]']
)
def test_a_bare_name_is_found(planted: str) -> None:
    assert bare_texts(f"first\n{planted}\n")
    if "import" in planted:
        assert MAY_IMPORT.search(planted)
        assert bare_imports(ast.parse(planted)) == [1]


def test_the_links_lead_to_the_folders() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / "moldau").iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in LINKED}
