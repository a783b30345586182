"""The house kept tidy: sizes a reader can hold, words that mean something, nothing left unfinished."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "protocol", "storage", "replication", "kraft", "coordinator", "spark_jobs", "pyspark_moldau")
MODULE_LINES_MAX = 600
TEST_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
NAMELESS = re.compile(r"(^|_)(util|utils|helper|helpers|common|misc|manager|managers|impl)(_|$)")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|NotImplemented" r"Error")


@cache
def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def product() -> list[Path]:
    return [path for path in sources() if path.relative_to(ROOT).parts[0] in PACKAGES]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_read_in_one_sitting(path: Path) -> None:
    is_test = path.relative_to(ROOT).parts[0] == "tests"
    text = path.read_text()
    assert text.count("\n") <= (TEST_LINES_MAX if is_test else MODULE_LINES_MAX)
    tree = ast.parse(text)
    if path.name != "conftest.py" and tree.body:
        assert ast.get_docstring(tree), "a module says in its docstring what it is"
    for node in ast.walk(tree):
        if not is_test and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno:
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, f"{node.name} is longer than a screen"


@pytest.mark.parametrize("path", product(), ids=lambda path: str(path.relative_to(ROOT)))
def test_product_code_is_finished_and_named(path: Path) -> None:
    assert not NAMELESS.search(path.stem)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert not UNFINISHED.search(line), f"line {number}: {line.strip()}"


def test_an_exception_of_every_kind_is_caught_only_at_the_edge() -> None:
    allowed = {"broker/network/connection.py", "broker/runtime/tasks.py"}
    catching = set()
    for path in product():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception":
                catching.add(str(path.relative_to(ROOT)))
    assert catching <= allowed


def test_the_readme_maps_the_packages_that_are_there() -> None:
    text = (ROOT / "README.md").read_text()
    for package in PACKAGES:
        assert f"`{package}/`" in text
